#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/recent.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/api/query.h"

// The table `names` of one segment, through a bounded cache. Errors stick to the connection.
namespace scriptorium::catalog {

constexpr std::int64_t name_field(QueryField field) noexcept {
  return static_cast<std::int64_t>(field);
}

// `select`: "SELECT text, typeof(text) = 'blob' FROM names WHERE id = ?". The text of a list is
// that of its items, joined by '\n'; "" for an id that is not there.
std::string read_name(sqlite::Statement& select, std::int64_t id);
inline constexpr const char* kSelectName =
    "SELECT text, typeof(text) = 'blob' FROM names WHERE id = ?";

// id and text of the names of a field that are this text but for case.
inline constexpr const char* kSelectSameNames =
    "SELECT id, text FROM names WHERE field = ? AND text = ? COLLATE NOCASE AND typeof(text) = "
    "'text'";

class NameReader {
 public:
  explicit NameReader(sqlite::Connection& db);

  // "" for an id that is not there. Valid until the next call, as the items of a list.
  std::string_view text(std::int64_t id);
  const std::vector<std::string>& items(std::int64_t list);
  // Only after a rollback: a committed name stays what it is.
  void forget();

 private:
  sqlite::Statement select_;
  RecentMap<std::int64_t, std::string> cache_;
  RecentMap<std::int64_t, std::vector<std::string>> lists_;
};

class NameWriter {
 public:
  explicit NameWriter(sqlite::Connection& db);

  // The name's id, which is made if it is new.
  std::int64_t id(std::int64_t field, std::string_view text);
  std::optional<std::int64_t> id(std::int64_t field, const std::optional<std::string>& text) {
    if (!text) return std::nullopt;
    return id(field, std::string_view(*text));
  }
  // Of the items of a list, in their order. A newline in an item becomes a blank. Valid until the
  // next call for this field.
  const std::vector<std::int64_t>& item_ids(QueryField field,
                                            const std::vector<std::string>& items);
  // Of a list with these items, whose names have `item_field`. The same list may have several ids.
  std::int64_t list_id(std::int64_t field, QueryField item_field,
                       const std::vector<std::string>& items);
  // After a rollback, and when another process may have changed the table.
  void forget() {
    cache_.clear();
    lists_.clear();
    last_.clear();
    last_items_.clear();
  }

 private:
  std::int64_t find_or_make(std::int64_t field, std::string_view text);  // 0: an error

  sqlite::Connection& db_;
  sqlite::Statement find_;
  sqlite::Statement insert_;
  RecentMap<std::string, std::int64_t> cache_;
  RecentMap<std::string, std::int64_t> lists_;
  std::string key_;
  // By field, what was asked for last: the row, the chunk and the day of a job ask for the same
  // texts, and often the next job does.
  struct LastName {
    std::string text;
    std::int64_t id = 0;
  };
  struct LastItems {
    std::vector<std::string> items;
    std::vector<std::int64_t> ids;
  };
  std::vector<LastName> last_;
  std::map<std::int64_t, LastItems> last_items_;
};

}  // namespace scriptorium::catalog

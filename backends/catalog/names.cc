#include "backends/catalog/names.h"

#include <algorithm>

#include "backends/catalog/block.h"
#include "backends/catalog/rows.h"

namespace scriptorium::catalog {
namespace {

// Texts are short, except for lists of directives: a few megabytes.
constexpr std::size_t kMostNames = 16'384;
// Of a reader, of which a busy page has many.
constexpr std::size_t kMostNamesOfReader = 4'096;
constexpr std::size_t kMostListsOfReader = 1'024;

}  // namespace

std::string read_name(sqlite::Statement& select, std::int64_t id) {
  std::string text;
  std::vector<std::int64_t> items;
  if (select.bind(id).step()) {
    if (select.integer(1) != 0) {
      items = unpack_ids(select.text(0)).value_or(items);
    } else {
      text = select.text(0);
    }
  }
  select.reset();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += '\n';
    if (select.bind(items[i]).step()) text += select.text(0);
    select.reset();
  }
  return text;
}

NameReader::NameReader(sqlite::Connection& db)
    : select_(db, kSelectName), cache_(kMostNamesOfReader), lists_(kMostListsOfReader) {}

std::string_view NameReader::text(std::int64_t id) {
  if (const std::string* known = cache_.find(id)) return *known;
  return cache_.insert(id, read_name(select_, id));
}

const std::vector<std::string>& NameReader::items(std::int64_t list) {
  if (const auto* const known = lists_.find(list)) return *known;
  return lists_.insert(list, split_lines(text(list)));
}

void NameReader::forget() {
  cache_.clear();
  lists_.clear();
}

NameWriter::NameWriter(sqlite::Connection& db)
    : db_(db),
      // The index ignores case, names do not.
      find_(db,
            "SELECT id FROM names WHERE field = ?1 AND text = ?2 COLLATE NOCASE "
            "AND text = ?2 COLLATE BINARY AND typeof(text) = 'text'"),
      insert_(db, "INSERT INTO names(field, text) VALUES(?, ?)"),
      cache_(kMostNames),
      lists_(kMostNames) {}

const std::vector<std::int64_t>& NameWriter::item_ids(QueryField field,
                                                      const std::vector<std::string>& items) {
  LastItems& last = last_items_[name_field(field)];
  if (!last.ids.empty() && last.items == items) return last.ids;
  last.ids.clear();
  std::string plain;
  for (const std::string& item : items) {
    if (item.find('\n') == std::string::npos) {
      last.ids.push_back(find_or_make(name_field(field), item));
    } else {
      plain = item;
      std::replace(plain.begin(), plain.end(), '\n', ' ');
      last.ids.push_back(find_or_make(name_field(field), plain));
    }
  }
  last.items = items;
  return last.ids;
}

std::int64_t NameWriter::list_id(std::int64_t field, QueryField item_field,
                                 const std::vector<std::string>& items) {
  const std::string packed = pack_ids(item_ids(item_field, items));
  std::string key(1, static_cast<char>(field));
  key += packed;
  if (const std::int64_t* known = lists_.find(key)) return *known;
  if (!db_.ok() || !insert_.run(field, sqlite::Blob{packed})) return 0;
  return lists_.insert(key, db_.last_insert_id());
}

std::int64_t NameWriter::id(std::int64_t field, std::string_view text) {
  const auto index = static_cast<std::size_t>(field);
  if (index >= last_.size()) last_.resize(index + 1);
  LastName& last = last_[index];
  if (last.id != 0 && last.text == text) return last.id;
  last.id = find_or_make(field, text);
  last.text = text;
  return last.id;
}

std::int64_t NameWriter::find_or_make(std::int64_t field, std::string_view text) {
  key_.assign(1, static_cast<char>(field));
  key_ += text;
  if (const std::int64_t* known = cache_.find(key_)) return *known;
  auto id = find_.first(field, text);
  if (!id && insert_.run(field, text)) id = db_.last_insert_id();
  if (!id || !db_.ok()) return 0;
  return cache_.insert(key_, *id);
}

}  // namespace scriptorium::catalog

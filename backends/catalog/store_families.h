#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/recent.h"
#include "core/api/event.h"
#include "core/api/kit/search/similarity.h"
#include "core/api/kit/sqlite/connection.h"

namespace scriptorium::catalog {

// Which family a job belongs to. Begins a transaction of the catalog when it writes for the first
// time; the caller commits it before the segment that names the family, so that no job has an
// unknown one.
// Threads: one at a time. Errors stick to the connection.
class Families {
 public:
  explicit Families(sqlite::Connection& catalog);

  // `owner`: as in `owners.name`. The same script under the same name keeps its family, as long as
  // it is remembered.
  std::uint64_t family_of(const std::string& owner, std::string_view job_name,
                          const EventFile& script);
  // After a rollback, and when another process may have changed the table.
  void forget() {
    cache_.clear();
    of_scripts_.clear();
  }

 private:
  // A user comes back to what the first job was, and edits on from what the last one was.
  struct Variant {
    std::string name;
    ScriptSignature signature;
  };
  struct Family {
    std::int64_t id = 0;
    Variant first, last;
  };
  using List = std::vector<Family>;  // the newest last

  List& families(const std::string& owner);
  bool begin();
  std::uint64_t find_or_make(const std::string& owner, const std::string& name,
                             std::string_view script);

  sqlite::Connection& catalog_;
  sqlite::Statement select_;
  sqlite::Statement insert_;
  sqlite::Statement update_;
  RecentMap<std::string, List> cache_;
  RecentMap<std::string, std::uint64_t> of_scripts_;  // by owner, stable name and SHA-256
};

}  // namespace scriptorium::catalog

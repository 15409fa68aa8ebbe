#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/catalog/search_budget.h"
#include "backends/catalog/search_reader.h"
#include "backends/catalog/segments.h"
#include "core/base/guarded.h"

namespace scriptorium::catalog {

// Read-only connections to the segments of a catalog, kept for the next question.
// Threads: any; a lent reader belongs to the borrower.
class ReaderPool {
 public:
  explicit ReaderPool(std::string root) : root_(std::move(root)) {}

  // Gives its reader back when it is destroyed.
  class Lent {
   public:
    Lent(ReaderPool& pool, std::unique_ptr<SearchReader> reader);
    Lent(Lent&&) noexcept = default;
    Lent& operator=(Lent&&) = delete;
    ~Lent();
    SearchReader& operator*() const noexcept { return *reader_; }
    SearchReader* operator->() const noexcept { return reader_.get(); }

    // From now on, SQLite's own loops end with the budget, which must live longer; until
    // unlimited().
    void limit(Budget& budget);
    void unlimited();

   private:
    ReaderPool* pool_;
    std::unique_ptr<SearchReader> reader_;
  };

  // Newest first. kTransient: there is no catalog yet, or it cannot be asked now.
  Result<std::vector<SegmentInfo>> segments();
  Result<Lent> lend(std::int64_t segment);
  // Of a list of segments(). Nothing if it is to be left out; `problems` says why, unless it has
  // been removed meanwhile.
  std::optional<Lent> lend_or_note(const SegmentInfo& info, std::vector<std::string>& problems);

 private:
  struct Idle {
    FileId file;
    std::unique_ptr<SearchReader> reader;
  };
  struct IdleCatalog {
    FileId file;
    ConnectionPtr db;  // null: there is none
  };
  void give_back(std::unique_ptr<SearchReader> reader);

  const std::string root_;
  Guarded<IdleCatalog> catalog_;
  Guarded<std::multimap<std::int64_t, Idle>> idle_;
};

}  // namespace scriptorium::catalog

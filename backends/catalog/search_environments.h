#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "backends/catalog/search_condition.h"
#include "backends/catalog/search_reader.h"

namespace scriptorium::catalog {

// Which leaves of a condition hold at the places of a block. `source` says what the block's
// contents are; all other leaves are open.
class BlockLeaves {
 public:
  BlockLeaves() = default;
  BlockLeaves(const Condition& condition, Condition::Source source, const Block& block);

  std::size_t size() const noexcept { return size_; }  // of the block
  const Truths& truths() const noexcept { return truths_; }
  // Of a place that is possible.
  bool holds(std::size_t leaf, std::int64_t place) const {
    return leaf < leaves_.size() && leaves_[leaf].has(place);
  }

 private:
  std::vector<IdSet> leaves_;  // empty if the condition holds nowhere
  Truths truths_;
  std::size_t size_ = 0;
};

// The same of blocks of environments, each decided when its first environment is asked for. Most
// have no match, and then none of their jobs needs another look.
// Borrows both arguments. Threads: one at a time.
class EnvironmentLeaves {
 public:
  EnvironmentLeaves(SearchReader& reader, const Condition& condition)
      : reader_(reader), condition_(condition) {}

  // Null if the block cannot be read, which is a problem of the reader.
  const BlockLeaves* of_block(std::int64_t block);
  // After blocks may have been rewritten.
  void forget() { known_.clear(); }

 private:
  SearchReader& reader_;
  const Condition& condition_;
  std::unordered_map<std::int64_t, BlockLeaves> known_;
};

}  // namespace scriptorium::catalog

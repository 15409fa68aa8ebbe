#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/catalog/search_position.h"
#include "backends/catalog/search_reader.h"

namespace scriptorium::catalog {

struct Match {
  Position position;
  RawJob job;
};

// The newest matches, at most so many, below a position.
class NewestMatches {
 public:
  NewestMatches(std::size_t most, const Position& below) : most_(most), below_(below) {}

  bool wants(const Position& position) noexcept {
    if (position >= below_ || most_ == 0) return false;
    if (heap_.size() < most_ || position > heap_.front().position) return true;
    refused_ = true;
    return false;
  }
  // Only what it wants.
  void add(const Position& position, const RawJob& job);
  // Whether nothing at this time or earlier can be among them.
  bool are_complete(std::int64_t newest_left) const noexcept {
    return heap_.size() >= most_ && (most_ == 0 || heap_.front().position.time > newest_left);
  }
  // Whether there may have been more than fitted.
  bool refused_some() const noexcept { return refused_; }
  std::vector<Match> take();  // newest first

 private:
  std::size_t most_;
  Position below_;
  std::vector<Match> heap_;  // the oldest first
  bool refused_ = false;
};

}  // namespace scriptorium::catalog

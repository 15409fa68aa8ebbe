#include "backends/catalog/search_collector.h"

#include <algorithm>
#include <utility>

namespace scriptorium::catalog {
namespace {

bool is_newer(const Match& a, const Match& b) { return a.position > b.position; }

}  // namespace

void NewestMatches::add(const Position& position, const RawJob& job) {
  if (heap_.size() == most_) {
    std::pop_heap(heap_.begin(), heap_.end(), is_newer);
    heap_.pop_back();
    refused_ = true;
  }
  heap_.push_back({position, job});
  std::push_heap(heap_.begin(), heap_.end(), is_newer);
}

std::vector<Match> NewestMatches::take() {
  std::sort(heap_.begin(), heap_.end(), is_newer);
  return std::exchange(heap_, {});
}

}  // namespace scriptorium::catalog

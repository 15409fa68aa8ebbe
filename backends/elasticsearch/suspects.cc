#include "backends/elasticsearch/suspects.h"

#include <algorithm>

namespace scriptorium::elasticsearch {
namespace {

constexpr std::uint32_t kLeastRefusals = 8;
constexpr std::chrono::seconds kLeastTime{600};
constexpr std::size_t kMost = 10'000;

}  // namespace

bool Suspects::refused(const std::string& id, const std::string& family, SteadyTime now) {
  if (refusals_.size() >= kMost && !refusals_.contains(id)) {
    refusals_.erase(
        std::ranges::min_element(refusals_, {}, [](const auto& one) { return one.second.since; }));
  }
  Refusals& one =
      refusals_
          .try_emplace(id,
                       Refusals{.since = now, .family = family, .accepts_before = accepts(family)})
          .first->second;
  ++one.count;
  return one.count >= kLeastRefusals && now - one.since >= kLeastTime &&
         accepts(one.family) != one.accepts_before;
}

bool Suspects::others_accepted_since(const std::string& id) const {
  const auto known = refusals_.find(id);
  return known != refusals_.end() && known->second.accepts_before != accepts(known->second.family);
}

}  // namespace scriptorium::elasticsearch

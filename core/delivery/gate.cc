#include "core/delivery/gate.h"

#include <algorithm>
#include <utility>

namespace scriptorium::delivery {
namespace {

constexpr std::chrono::minutes kAnnounceEvery{10};
constexpr std::uint32_t kMostFailures = 64;  // the back-off has long reached its maximum

}  // namespace

bool Gate::begin_probe(SteadyTime now) {
  if (!awaits_probe() || now < retry_at_) return false;
  return probing_ = true;
}

Gate::Announcement Gate::conclude(const Outcome& outcome, SteadyTime now) {
  if (outcome.probe) probing_ = false;
  const bool speaks_for_destination = outcome.fresh || outcome.probe;
  if (outcome.accepted) {
    ++accepts_;
    if (!speaks_for_destination) return Announcement::kNone;
    closed_ = false;
    failures_ = 0;
    return std::exchange(announced_, false) ? Announcement::kBack : Announcement::kNone;
  }
  if (!outcome.refused) {
    // A probe on which the plugin threw says nothing about the destination: the next may pass.
    if (outcome.probe) retry_at_ = now;
    return Announcement::kNone;
  }
  if (!speaks_for_destination) return Announcement::kNone;
  prolong(outcome, now);
  if (announced_ && now < announce_again_at_) return Announcement::kNone;
  announced_ = true;
  announce_again_at_ = now + kAnnounceEvery;
  return Announcement::kDown;
}

void Gate::prolong(const Outcome& outcome, SteadyTime now) {
  // Of several batches that were under way together, only the first counts as a failure.
  if (!closed_ || outcome.probe) {
    failures_ = std::min(failures_ + 1, kMostFailures);
    retry_at_ = now + back_off_.next(failures_, outcome.hint);
  } else if (outcome.hint) {
    retry_at_ = std::max(retry_at_, now + back_off_.next(0, outcome.hint));
  }
  closed_ = true;
}

void Gate::forget_back_off(SteadyTime now) {
  failures_ = 0;
  retry_at_ = now;
}

}  // namespace scriptorium::delivery

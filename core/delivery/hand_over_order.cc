#include "core/delivery/hand_over_order.h"

namespace scriptorium::delivery {

std::optional<std::uint64_t> HandOverOrder::line_up(std::uint64_t first_sequence) {
  if (!in_order_) return std::nullopt;
  places_.insert(first_sequence);
  return first_sequence;
}

void HandOverOrder::line_up_again(const std::optional<std::uint64_t>& place) {
  if (place) places_.insert(*place);
}

void HandOverOrder::leave(const std::optional<std::uint64_t>& place) {
  if (place) places_.erase(*place);
}

bool HandOverOrder::may_probe(const std::optional<std::uint64_t>& place) const {
  return !place || (in_hand_ == 0 && is_first(*place));
}

bool HandOverOrder::take(const Request& request) {
  if (in_order_ && (handing_over_ || (request.place && !is_first(*request.place)))) return false;
  if (suspect_in_hand_ || (request.suspect && in_hand_ > 0)) return false;
  if (!request.suspect && !in_order_ && suspects_waiting_ > 0) return false;
  suspect_in_hand_ = request.suspect;
  handing_over_ = true;
  ++calls_;
  in_hand_ += request.events;
  return true;
}

void HandOverOrder::withdraw(const Request& request) {
  --calls_;
  handing_over_ = false;
  settled(request);
}

void HandOverOrder::handed_over(const Request& request) {
  --calls_;
  handing_over_ = false;
  leave(request.place);
}

void HandOverOrder::settled(const Request& request) {
  in_hand_ -= request.events;
  if (request.suspect) suspect_in_hand_ = false;
}

}  // namespace scriptorium::delivery

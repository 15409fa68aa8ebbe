#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <utility>

#include "core/base/time.h"

namespace scriptorium {

// The entries that the journal refused for want of room, oldest first, and when they are offered
// again. Notifications are still read meanwhile: each one in the kernel's queue keeps a deleted
// file on the disk, and most of them concern files outside the spool.
//
// Pure. An entry that no longer waits keeps its place until its turn comes.
class WaitingList {
 public:
  // Beyond this many, entries are left to a scan that follows when there is room.
  static constexpr std::size_t kMost = 20'000;
  // For entries that wait because of a user's share, or until it is known whose they are: so many
  // more. In the next round the oldest of them make place, so that one user's entries do not keep
  // out those of another.
  static constexpr std::size_t kMoreOverShare = 5'000;
  // Refused entries are offered again after this long, even if the journal has not called.
  static constexpr std::chrono::milliseconds kOfferAgain{1000};

  struct Item {
    std::string key;
    std::uint64_t bytes = 0;    // when it was refused
    std::int64_t mtime_ns = 0;  // by which the journal knows it; 0 = it does not
  };

  std::size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }
  const std::deque<Item>& items() const { return items_; }
  SteadyTime next_offer() const { return next_offer_; }

  // An entry of this size or smaller was refused since the last round began, so there is no point
  // in parsing this one.
  bool is_too_large(std::uint64_t bytes) const { return bytes >= refused_bytes_; }
  void refused(std::uint64_t bytes) { refused_bytes_ = std::min(refused_bytes_, bytes); }

  // False if the list is full.
  bool add(Item item, bool over_share, SteadyTime now) {
    if (items_.size() >= kMost + (over_share ? kMoreOverShare : 0)) return false;
    items_.push_back(std::move(item));
    if (items_.size() == 1) next_offer_ = now + kOfferAgain;
    return true;
  }
  // How many to take() in this round; 0 if it is not time yet. `room`: the journal has called.
  std::size_t begin_round(SteadyTime now, bool room) {
    if (!room && now < next_offer_) return 0;
    next_offer_ = now + kOfferAgain;
    refused_bytes_ = std::numeric_limits<std::uint64_t>::max();
    return items_.size();
  }
  Item take() {
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  // False if the list is full.
  bool keep(Item item) {
    if (items_.size() >= kMost) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // An entry is left to a scan. True if it is the first since scan_is_due().
  bool leave_to_scan() { return !std::exchange(left_to_scan_, true); }
  // True once, when all that waited has been taken and a scan must find the others.
  bool scan_is_due() { return items_.empty() && std::exchange(left_to_scan_, false); }

 private:
  std::deque<Item> items_;
  std::uint64_t refused_bytes_ = std::numeric_limits<std::uint64_t>::max();
  SteadyTime next_offer_;
  bool left_to_scan_ = false;
};

}  // namespace scriptorium

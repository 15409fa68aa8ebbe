#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/api/event.h"
#include "core/base/time.h"
#include "core/journal/journal_types.h"

namespace scriptorium::journal {

// How much of the journal each user may take (docs/journal.md, "Shares"). It decides and remembers;
// it has no lock, no clock and no database.
//
// An owner counts only if the scheduler named it: otherwise one user could lock out another by a
// forged environment. An event whose owner is unknown therefore counts for nobody. But once a user
// is close to the share, the event might belong to that user: then the scheduler is asked first,
// while the entry waits in the spool.
class Shares {
 public:
  Shares(std::uint64_t max_bytes, std::int64_t user_share_percent);
  // Used bytes from which on only small events are taken.
  static std::uint64_t large_until(std::uint64_t max_bytes) { return max_bytes / 5 * 4; }

  // What the journal holds at the moment of a decision.
  struct Held {
    std::uint64_t used = 0;
    // Of events whose owner is not known yet, queued ones included.
    std::uint64_t unclaimed = 0;
    std::uint64_t largest = 0;                            // the largest charge of all
    const std::map<std::string, std::uint64_t>& charges;  // by user id
  };
  // May this event be taken now? `can_ask`: there is a scheduler that can name its owner.
  Admission decide(const Held& held, const std::string& source, const Event& event,
                   const std::optional<CaptureMark>& mark, bool can_ask, SteadyTime now);
  // It was queued, or the journal has it.
  void taken(const std::string& source, const std::string& event_id, SteadyTime now);
  // Its owner is known and its bytes are charged, or it was removed.
  void charged(const std::string& event_id);

  // Whether decide() refused this entry because of shares, and would again.
  bool refuses(const Held& held, const std::string& source, const CaptureMark& mark,
               SteadyTime now);

  // What the scheduler is to be asked, oldest first.
  std::vector<Unresolved> questions(const std::string& source, std::size_t limit,
                                    SteadyTime now) const;
  std::size_t question_count(const std::string& source) const;
  // Without a verified user the scheduler could not name one, and it counts for nobody.
  void answer(const std::string& source, const std::string& event_id, const User& user);

  // Which users wait because of their share, and with how much; omits entries that were not offered
  // again for long.
  std::vector<OverShare> waiting(const Held& held, SteadyTime now) const;
  std::uint64_t share_bytes() const noexcept { return share_bytes_; }

 private:
  struct Entry {
    std::string source, key;
    std::int64_t mtime_ns = 0;
    std::uint64_t bytes = 0;
    std::shared_ptr<const Event> question;  // until it is answered
    std::optional<CaptureMark> mark;
    std::optional<std::string> owner;  // the answer: user id, "" = the scheduler could not name one
    SteadyTime first, last;            // when it was offered
    bool refused = false;              // because of shares
  };
  struct Claim {
    std::string owner;
    std::uint64_t bytes = 0;
    SteadyTime since;
  };
  using Entries = std::map<std::pair<std::string, std::string>, Entry>;  // by source and event id

  void erase(Entries::iterator entry);
  void release(const Claim& claim);
  bool over(const Held& held, const std::string& owner, std::uint64_t bytes) const;
  bool must_ask(const Held& held, const Entry& entry, bool can_ask, SteadyTime now) const;
  bool make_place();
  void forget_old(SteadyTime now);

  const std::uint64_t large_until_;  // used bytes from which only small events are taken
  const std::uint64_t share_bytes_;
  Entries entries_;
  std::vector<std::pair<std::string, std::string>> answered_;  // with a known owner, in order
  std::map<std::pair<std::string, std::string>, std::string>
      by_key_;                                      // source and entry: the event id
  std::unordered_map<std::string, Claim> claimed_;  // by event id: taken, and not charged yet
  std::map<std::string, std::uint64_t> claims_;     // their bytes, by user id
  std::map<std::string, std::string> names_;        // by user id
  std::map<std::string, std::size_t> asking_;       // by source
  SteadyTime next_sweep_;
};

}  // namespace scriptorium::journal

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
#include "core/journal/journal.h"

namespace scriptorium::journal {

// Who may take how much of the journal (docs/journal.md, "Shares"). It decides and remembers; it
// has no lock, no clock and no database.
//
// An owner counts only if the scheduler named it: else one user could lock out another by a forged
// environment. So an event whose owner is not known counts for nobody; but once somebody is close
// to his share it might be his, and then the scheduler is asked first, while the entry waits in the
// spool.
class Shares {
 public:
  using Admission = Journal::Admission;

  Shares(std::uint64_t max_bytes, std::int64_t user_share_percent);

  // What the journal holds at the moment of a decision.
  struct Held {
    std::uint64_t used = 0;
    std::uint64_t unclaimed =
        0;  // of events whose owner is not known yet, those that are queued included
    std::uint64_t largest = 0;                            // the largest charge of all
    const std::map<std::string, std::uint64_t>& charges;  // by user id
  };
  // May this event be taken now? `can_ask`: there is a scheduler that can name its owner.
  Admission decide(const Held& held, const std::string& source, const Event& event,
                   const std::optional<CaptureMark>& mark, bool can_ask, SteadyTime now);
  // It was queued, or the journal has it.
  void taken(const std::string& source, const std::string& event_id, SteadyTime now);
  // Its owner is known and its bytes are charged, or it is gone.
  void charged(const std::string& event_id);

  // Whether decide() refused this entry for the sake of shares, and would again.
  bool refuses(const Held& held, const std::string& source, const CaptureMark& mark,
               SteadyTime now);

  // What the scheduler is to be asked, oldest first.
  std::vector<Journal::Unresolved> questions(const std::string& source, std::size_t limit,
                                             SteadyTime now) const;
  std::size_t question_count(const std::string& source) const;
  // Without verified user: nobody could say, and it counts for nobody.
  void answer(const std::string& source, const std::string& event_id, const User& user);

  // Who waits because of his share, and how much of his; entries that were not offered again for
  // long are left out.
  std::vector<Journal::OverShare> waiting(const Held& held, SteadyTime now) const;
  std::uint64_t share_bytes() const noexcept { return share_bytes_; }

 private:
  struct Entry {
    std::string source, key;
    std::int64_t mtime_ns = 0;
    std::uint64_t bytes = 0;
    std::shared_ptr<const Event> question;  // until it is answered
    std::optional<CaptureMark> mark;
    std::optional<std::string> owner;  // answered: user id, "" = nobody could say
    SteadyTime first, last;            // when it was offered
    bool refused = false;              // for the sake of shares
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
  void forget_old(SteadyTime now);

  const std::uint64_t large_until_;  // used bytes from which only small events are taken
  const std::uint64_t share_bytes_;
  Entries entries_;
  std::map<std::pair<std::string, std::string>, std::string>
      by_key_;                                      // source and entry: the event id
  std::unordered_map<std::string, Claim> claimed_;  // by event id: taken, and not charged yet
  std::map<std::string, std::uint64_t> claims_;     // their bytes, by user id
  std::map<std::string, std::string> names_;        // by user id
  std::map<std::string, std::size_t> asking_;       // by source
  SteadyTime next_sweep_;
};

}  // namespace scriptorium::journal

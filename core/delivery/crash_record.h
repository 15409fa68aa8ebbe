#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/guarded.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium {

// Which events are in plugins' hands, written where it outlives the process, so that an event that
// kills the daemon is found: after a crash all that was in hand is suspect and goes out one by one;
// what is alone in hand at two crashes is guilty, and core gives it to the plugin no more.
//
// - In hand: handed over and not settled, wherever the plugin's code runs for it (a callback of its
// library included). After
//   half a minute an event is no longer blamed: what kills, kills soon, and a destination may keep
//   one waiting for days.
// - A crash is a death by SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT of our own. Other deaths
// (SIGKILL of the operator, of
//   systemd, of the kernel that is out of memory) make suspects as well, but five of them are
//   needed for a verdict, for most of them have nothing to do with the event.
// - One suspect of the whole process is in hand at a time, so that two sinks never share the blame.
//
// Owns:    STATE_DIR/in-flight: a file for each batch in hand, `died` (signal and file of the
// thread that crashed), `suspects`.
//          Files and write(), not a mapping: a full disk is then an error and no SIGBUS. Nothing is
//          synced: it has to outlive the process, not the machine. Garbage after a power cut fails
//          its checksum and is ignored.
// Threads: open() before any other thread; the rest from any. tick() about once a second.
class CrashRecord {
 public:
  // What is no event's id but a spool entry's, in an adapter's hands, begins so.
  static constexpr std::string_view kEntryMark = "entry:";
  // `known`: whether such an event is still in the journal; what is not is forgotten.
  static Result<std::unique_ptr<CrashRecord>> open(
      const std::string& state_dir, Logger& log, const Clock& clock,
      const std::function<bool(const std::string& event_id)>& known);
  ~CrashRecord();  // nothing is in hand any more
  CrashRecord(const CrashRecord&) = delete;
  CrashRecord& operator=(const CrashRecord&) = delete;

  enum class Verdict {
    kInnocent,
    kSuspect,  // hand it over alone
    kGuilty,   // do not hand it over
  };
  Verdict verdict(std::string_view sink, const std::string& event_id) const;

  // From before a batch is handed over until all of it is settled.
  class InHand {
   public:
    InHand() = default;
    InHand(InHand&& other) noexcept
        : record_(std::exchange(other.record_, nullptr)), slot_(other.slot_) {}
    InHand& operator=(InHand&& other) noexcept {
      if (this != &other) {
        release();
        record_ = std::exchange(other.record_, nullptr);
        slot_ = other.slot_;
      }
      return *this;
    }
    ~InHand() { release(); }
    explicit operator bool() const noexcept { return record_ != nullptr; }
    void release() noexcept;

   private:
    friend class CrashRecord;
    InHand(CrashRecord* record, std::size_t slot) : record_(record), slot_(slot) {}
    CrashRecord* record_ = nullptr;
    std::size_t slot_ = 0;
  };
  // With `suspect` (one event then) it waits until no other suspect is in hand; empty-handed at a
  // stop.
  InHand hand_over(std::string_view sink, std::span<const std::string> event_ids, bool suspect,
                   const std::stop_token& stop);

  // While the calling thread is inside the plugin for this batch: a crash of this thread is then
  // this batch's and no other's.
  class Inside {
   public:
    explicit Inside(const InHand& in_hand) noexcept;
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };
  // A stack for the handler of the calling thread, without which a crash by endless recursion
  // leaves no note.
  class SignalStack {
   public:
    SignalStack();
    ~SignalStack();
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;

   private:
    std::unique_ptr<char[]> memory_;
  };

  // Acknowledged, or a dead letter: no suspect any more. Written some seconds later, when the
  // journal has long been told.
  void settled(std::string_view sink, const std::string& event_id);
  void tick();
  // At the end of an orderly stop: what hangs in a plugin is not to blame.
  void close() noexcept;
  // Notes a crash of this process from now on. Once; the handlers stay until the end.
  Result<void> watch_signals();

 private:
  struct Slot {
    UniqueFd file;
    bool taken = false;
    bool suspect = false;
    bool blamed = false;  // the file says that it is in hand
    SteadyTime since;
  };
  struct Suspicion {
    std::uint32_t crashes = 0;  // while it was alone in hand
    std::uint32_t deaths = 0;   // crashes included
  };
  struct Shared {
    std::vector<Slot> slots;
    std::map<std::string, Suspicion, std::less<>> suspects;  // "sink\nevent id"
    std::optional<SteadyTime> changed;  // `suspects` differs from its file since
    bool suspect_in_hand = false;
    bool write_failed = false;
  };
  struct Found;  // in a file of the process before

  CrashRecord(std::string directory, Logger& log, const Clock& clock)
      : directory_(std::move(directory)), log_(log), clock_(clock) {}
  void take_over(const std::function<bool(const std::string&)>& known);
  Result<void> store_suspects() const;
  void let_go(std::size_t slot) noexcept;
  void clear(const Slot& slot) const noexcept;

  const std::string directory_;
  Logger& log_;
  const Clock& clock_;
  Guarded<Shared> shared_;
};

}  // namespace scriptorium

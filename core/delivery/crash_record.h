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
#include "core/delivery/crash_note.h"

namespace scriptorium {

// Records which events the plugins have in hand, in files that outlive the process, so that an
// event that crashes the daemon is found. After a crash everything that was in hand is suspect and
// is delivered one by one. An event that is alone in hand at two crashes is guilty: core does not
// give it to the plugin again.
//
// - In hand: handed over and not settled, wherever the plugin's code runs for it, including a
//   callback of its library. After half a minute an event is no longer blamed: what crashes a
//   plugin does so soon, and a destination may keep an event waiting for days.
// - A crash is a death by SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT of our own. Other deaths
//   (SIGKILL by the operator, by systemd, by the kernel for lack of memory) make suspects too. Most
//   of them have nothing to do with the event, so five of them are needed for a verdict.
// - One suspect of the whole process is in hand at a time, so that no two sinks share the blame.
//
// Owns:    STATE_DIR/in-flight: a file for each batch in hand (in_flight_file.h), `died`
//          (crash_note.h), `suspects` (a line each: crashes, deaths, event id, sink). Files and
//          write(), not a mapping: a full disk is then an error and not a SIGBUS. Nothing is
//          synced, since the files must outlive the process but not the machine.
// Threads: open() before any other thread; the rest from any. tick() about once a second.
class CrashRecord {
 public:
  // The ids of spool entries, which a source's adapter has in hand, begin with this.
  static constexpr std::string_view kEntryMark = "entry:";
  // `is_needed`: whether the journal still holds an event; suspects that it does not are forgotten.
  static Result<std::unique_ptr<CrashRecord>> open(
      const std::string& state_dir, Logger& log, const Clock& clock,
      const std::function<bool(const std::string& event_id)>& is_needed);
  ~CrashRecord();  // calls close()
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
  // With `suspect` (then of one event) it waits until no other suspect is in hand. The result is
  // empty if a stop came first.
  InHand hand_over(std::string_view sink, std::span<const std::string> event_ids, bool suspect,
                   const std::stop_token& stop);

  // Lives while the calling thread runs the plugin's code for this batch: a crash of this thread is
  // then blamed on this batch alone.
  class Inside {
   public:
    explicit Inside(const InHand& in_hand) noexcept;
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };
  using SignalStack = crash_note::SignalStack;  // for each thread that enters a plugin

  // Acknowledged, or a dead letter: not suspect any more. Written to disk some seconds later, when
  // the journal has long committed the settlement.
  void settled(std::string_view sink, const std::string& event_id);
  void tick();
  // At the end of an orderly stop: an event that hangs in a plugin is not blamed.
  void close() noexcept;
  // Notes a crash of this process from now on. Once; the handlers stay until the process ends.
  Result<void> watch_signals();

 private:
  struct Slot {
    UniqueFd file;
    bool taken = false;
    bool suspect = false;
    bool is_recorded = false;  // the file says that it is in hand
    SteadyTime since;
  };
  struct Suspicion {
    std::uint32_t crashes = 0;  // of the process, while it was alone in hand
    std::uint32_t deaths = 0;   // the same, crashes included
  };
  using Suspects = std::map<std::string, Suspicion, std::less<>>;  // by "sink\nevent id"
  struct Shared {
    std::vector<Slot> slots;
    Suspects suspects;
    std::optional<SteadyTime> changed;  // `suspects` differs from its file since
    bool suspect_in_hand = false;
    bool write_failed = false;
  };
  struct Left;  // a batch that the process before had in hand

  CrashRecord(std::string directory, Logger& log, const Clock& clock)
      : directory_(std::move(directory)), log_(log), clock_(clock) {}
  void take_over(const std::function<bool(const std::string&)>& is_needed);
  std::vector<Left> find_left_batches() const;
  Suspects read_suspects() const;
  Result<void> store_suspects() const;
  bool wait_for_suspects_turn(const std::stop_token& stop);
  std::size_t take_slot(bool suspect);
  void record(std::size_t slot, std::string_view sink, std::span<const std::string> event_ids);
  void release(std::size_t slot) noexcept;

  const std::string directory_;
  Logger& log_;
  const Clock& clock_;
  Guarded<Shared> shared_;
};

}  // namespace scriptorium

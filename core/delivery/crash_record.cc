#include "core/delivery/crash_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <utility>

#include "core/base/number.h"
#include "core/base/text.h"
#include "core/delivery/in_flight_file.h"

namespace scriptorium {
namespace {

constexpr std::uint32_t kCrashesUntilGuilty = 2;
constexpr std::uint32_t kDeathsUntilGuilty = 5;
constexpr std::chrono::seconds kBlameFor{30};
constexpr std::chrono::seconds kStoreAfter{5};
constexpr std::size_t kMostSuspects = 100'000;

std::string key_of(std::string_view sink, std::string_view id) {
  return std::string(sink).append("\n").append(id);
}

Result<void> remove_if_there(const std::string& file) {
  if (::unlink(file.c_str()) == 0 || errno == ENOENT) return {};
  return system_error("unlink " + file, errno);
}

}  // namespace

struct CrashRecord::Left {
  std::int32_t slot = 0;
  std::string file;
  in_flight::Record record;  // kNothing: the file says nothing
};

Result<std::unique_ptr<CrashRecord>> CrashRecord::open(
    const std::string& state_dir, Logger& log, const Clock& clock,
    const std::function<bool(const std::string&)>& is_needed) {
  const std::string directory = state_dir + "/in-flight";
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error("mkdir " + directory, errno);
  std::unique_ptr<CrashRecord> record(new CrashRecord(directory, log, clock));
  record->take_over(is_needed);
  if (auto stored = record->store_suspects(); !stored) return stored.error();
  // The suspects that were just stored include what the note says.
  if (auto removed = remove_if_there(directory + "/died"); !removed) return removed.error();
  return record;
}

CrashRecord::~CrashRecord() { close(); }

// ---- what the process before has left

CrashRecord::Suspects CrashRecord::read_suspects() const {
  Suspects suspects;
  const auto text = read_file(directory_ + "/suspects");
  if (!text) return suspects;
  std::istringstream lines(*text);
  std::string id;
  std::string sink;
  for (Suspicion s; lines >> s.crashes >> s.deaths >> id >> sink;) suspects[key_of(sink, id)] = s;
  return suspects;
}

std::vector<CrashRecord::Left> CrashRecord::find_left_batches() const {
  std::vector<Left> left;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, failed)) {
    const std::string file = entry.path();
    if (const auto slot = parse_number<std::int32_t>(entry.path().filename().string()))
      left.push_back({*slot, file, in_flight::read(file).value_or(in_flight::Record{})});
  }
  return left;
}

// Turns what the process before had in hand into suspicion.
void CrashRecord::take_over(const std::function<bool(const std::string&)>& is_needed) {
  Suspects suspects = read_suspects();
  const std::vector<Left> left = find_left_batches();
  const auto note = crash_note::read(directory_ + "/died");
  // A thread that crashed in the plugin for one batch clears the others.
  std::vector<const in_flight::Record*> blamed;
  for (const Left& batch : left) {
    const bool cleared = note && note->slot != crash_note::kNoSlot && note->slot != batch.slot;
    if (batch.record.state != in_flight::State::kNothing && !cleared)
      blamed.push_back(&batch.record);
  }

  for (const in_flight::Record* record : blamed) {
    const bool was_alone = record->event_ids.size() == 1 &&
                           (record->state == in_flight::State::kSuspect || blamed.size() == 1);
    for (const std::string& id : record->event_ids) {
      if (suspects.size() >= kMostSuspects) break;
      Suspicion& suspicion = suspects[key_of(record->sink, id)];
      if (!was_alone) continue;
      ++suspicion.deaths;
      if (note) ++suspicion.crashes;
    }
    const std::string first = record->event_ids.empty() ? "" : record->event_ids.front();
    log_.warning("CRASHED_BEFORE",
                 "the process before ended while a plugin had events in hand; they are handed over "
                 "one by one, so that another crash shows which of them is to blame",
                 {{"sink", printable(record->sink, 80)},
                  {"events", record->event_ids.size()},
                  {"first", printable(first, 80)},
                  {"signal", note ? std::to_string(note->signal) : "unknown"}});
  }
  std::erase_if(suspects, [&](const auto& s) {
    const std::string id = s.first.substr(s.first.find('\n') + 1);
    return id.empty() || !is_needed(id);
  });
  shared_.with([&](Shared& shared) { shared.suspects = std::move(suspects); });
  // If the process ends before `suspects` is written, these crashes are forgotten: harmless, as the
  // next one counts.
  for (const Left& batch : left) ::unlink(batch.file.c_str());
}

Result<void> CrashRecord::store_suspects() const {
  std::string text;
  shared_.with([&](const Shared& shared) {
    for (const auto& [key, s] : shared.suspects) {
      const auto split = key.find('\n');
      text.append(std::to_string(s.crashes)).append(" ");
      text.append(std::to_string(s.deaths)).append(" ");
      text.append(key, split + 1).append(" ").append(key, 0, split).append("\n");
    }
  });
  const std::string file = directory_ + "/suspects";
  return text.empty() ? remove_if_there(file) : replace_file(file, text, 0600);
}

// ---- what this process has in hand

CrashRecord::Verdict CrashRecord::verdict(std::string_view sink,
                                          const std::string& event_id) const {
  return shared_.with([&](const Shared& shared) {
    if (shared.suspects.empty()) return Verdict::kInnocent;
    const auto found = shared.suspects.find(key_of(sink, event_id));
    if (found == shared.suspects.end()) return Verdict::kInnocent;
    const bool guilty =
        found->second.crashes >= kCrashesUntilGuilty || found->second.deaths >= kDeathsUntilGuilty;
    return guilty ? Verdict::kGuilty : Verdict::kSuspect;
  });
}

CrashRecord::InHand CrashRecord::hand_over(std::string_view sink,
                                           std::span<const std::string> event_ids, bool suspect,
                                           const std::stop_token& stop) {
  if (suspect && !wait_for_suspects_turn(stop)) return {};
  const std::size_t slot = take_slot(suspect);
  InHand in_hand(this, slot);
  record(slot, sink, event_ids);
  return in_hand;
}

bool CrashRecord::wait_for_suspects_turn(const std::stop_token& stop) {
  bool taken = false;
  shared_.wait(stop, [&](Shared& shared) {
    return taken || (taken = !std::exchange(shared.suspect_in_hand, true));
  });
  return taken;
}

std::size_t CrashRecord::take_slot(bool suspect) {
  const SteadyTime now = clock_.steady();
  return shared_.with([&](Shared& shared) {
    const auto free = std::find_if(shared.slots.begin(), shared.slots.end(),
                                   [](const Slot& s) { return !s.taken; });
    const auto index = static_cast<std::size_t>(free - shared.slots.begin());
    if (free == shared.slots.end()) shared.slots.emplace_back();
    Slot& slot = shared.slots[index];
    slot.taken = true;
    slot.suspect = suspect;
    slot.is_recorded = false;
    slot.since = now;
    return index;
  });
}

// By the thread that took the slot; it writes outside the lock.
void CrashRecord::record(std::size_t index, std::string_view sink,
                         std::span<const std::string> event_ids) {
  const auto [old_file, state] = shared_.with([&](const Shared& shared) {
    const Slot& slot = shared.slots[index];
    return std::pair(slot.file.get(),
                     slot.suspect ? in_flight::State::kSuspect : in_flight::State::kBatch);
  });
  UniqueFd made;
  if (old_file < 0) {
    const std::string path = directory_ + "/" + std::to_string(index);
    made.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  }
  const int file = old_file < 0 ? made.get() : old_file;
  const bool written = file >= 0 && in_flight::write(file, state, sink, event_ids);
  const int code = errno;
  const bool is_first_failure = shared_.with([&](Shared& shared) {
    Slot& slot = shared.slots[index];
    if (made) slot.file = std::move(made);
    slot.is_recorded = written;
    return !written && !std::exchange(shared.write_failed, true);
  });
  if (!is_first_failure) return;
  log_.warning("CRASH_RECORD_FAILED",
               "what is handed to plugins cannot be recorded; delivery continues, but an event "
               "that crashes the daemon is not found",
               {{"reason", system_error(directory_, code).message()}});
}

// Clears the file under the lock, so that it cannot undo the record of the slot's next batch. The
// write is to a page in memory.
void CrashRecord::release(std::size_t index) noexcept {
  shared_.with_notify([&](Shared& shared) {
    Slot& slot = shared.slots[index];
    if (slot.is_recorded) in_flight::clear(slot.file.get());
    if (slot.suspect) shared.suspect_in_hand = false;
    slot.is_recorded = slot.suspect = slot.taken = false;
  });
}

void CrashRecord::InHand::release() noexcept {
  if (record_ != nullptr) std::exchange(record_, nullptr)->release(slot_);
}

CrashRecord::Inside::Inside(const InHand& in_hand) noexcept {
  crash_note::set_slot_of_thread(
      in_hand.record_ != nullptr ? static_cast<std::int32_t>(in_hand.slot_) : crash_note::kNoSlot);
}
CrashRecord::Inside::~Inside() { crash_note::set_slot_of_thread(crash_note::kNoSlot); }

void CrashRecord::settled(std::string_view sink, const std::string& event_id) {
  const SteadyTime now = clock_.steady();
  shared_.with([&](Shared& shared) {
    if (shared.suspects.erase(key_of(sink, event_id)) > 0) shared.changed = now;
  });
}

void CrashRecord::tick() {
  const SteadyTime now = clock_.steady();
  const bool store = shared_.with_notify([&](Shared& shared) {
    for (Slot& slot : shared.slots) {
      if (!slot.taken || now - slot.since < kBlameFor) continue;
      if (std::exchange(slot.is_recorded, false)) in_flight::clear(slot.file.get());
      if (std::exchange(slot.suspect, false)) shared.suspect_in_hand = false;
    }
    if (!shared.changed || now - *shared.changed < kStoreAfter) return false;
    shared.changed.reset();
    return true;
  });
  // After a failure some events that are innocent are delivered alone once more.
  if (store) static_cast<void>(store_suspects());
}

void CrashRecord::close() noexcept {
  crash_note::stop();
  const bool store = shared_.with([&](Shared& shared) {
    for (Slot& slot : shared.slots) {
      if (std::exchange(slot.is_recorded, false)) in_flight::clear(slot.file.get());
    }
    // An event without a death of its own is not worth remembering: most of these were settled just
    // before the crash, and another crash would make it suspect again.
    const bool dropped =
        std::erase_if(shared.suspects, [](const auto& s) { return s.second.deaths == 0; }) > 0;
    return std::exchange(shared.changed, std::nullopt).has_value() || dropped;
  });
  if (store) static_cast<void>(store_suspects());
}

Result<void> CrashRecord::watch_signals() { return crash_note::start(directory_ + "/died"); }

}  // namespace scriptorium

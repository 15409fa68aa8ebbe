#include "core/capture/action_runner.h"

#include <chrono>
#include <utility>

namespace scriptorium {
namespace {

// The scheduler writes an entry within a fraction of a millisecond, and may remove it as quickly.
constexpr std::chrono::microseconds kReadAtOnce{400};
constexpr std::size_t kForgottenAtOnce = 1000;

}  // namespace

ActionRunner::ActionRunner(const Parts& parts)
    : parts_(parts),
      table_(parts.table),
      reader_(parts.access, parts.adapter, parts.table, parts.presence, *parts.report, parts.clock,
              static_cast<std::uint64_t>(parts.options.common.max_file_bytes)),
      taker_(parts.options, parts.adapter, parts.table, reader_, parts.check, parts.journal,
             parts.report, parts.clock) {}

void ActionRunner::tell(const EntryTable::Input& input, const std::stop_token& stop) {
  for (const EntryAction& action : table_.on(input)) carry_out(action, stop);
}

void ActionRunner::carry_out(const EntryAction& action, const std::stop_token& stop) {
  using Kind = EntryAction::Kind;
  const std::string& key = action.key;
  switch (action.kind) {
    case Kind::kCountNumber: return parts_.scanner.count_number(key);
    case Kind::kReadAtOnce:
      return is_whole(key) || read_at_once(key) ? judge(key, stop) : inspect(key, "inotify", stop);
    case Kind::kInspect: return inspect(key, "scan", stop);
    case Kind::kVerify: return verify(key, stop);
    case Kind::kTake: return take(action, stop);
    case Kind::kIgnoreEmpty: {
      const auto stat = parts_.access.stat(key);
      return tell(EntryTable::Ignored{key, stat ? identity_of("", *stat) : FileIdentity{}}, stop);
    }
    case Kind::kWatch:
      if (parts_.adapter.classify(key).role == SpoolPath::Role::kEntryDirectory)
        parts_.watches.add_entry(key);
      return;
    case Kind::kRelease:
      parts_.watches.release_entry(key, action.keep_watch);
      return reader_.held().drop(key);
    case Kind::kSetMark:
      if (const CaptureRecord* record = table_.record(key))
        parts_.journal.set_mark(parts_.options.name, mark_of(key, *record));
      return;
    case Kind::kForgetMark:
      forgotten_marks_.push_back(key);
      if (forgotten_marks_.size() >= kForgottenAtOnce) send_forgotten_marks();
      return;
    case Kind::kCountMissed: return parts_.report->missed(action.reason);
    case Kind::kCountIgnored: return parts_.report->ignored(action.reason);
    case Kind::kCountDuplicate: return parts_.report->duplicate();
    case Kind::kLeaveToScan: return leave_to_scan(action);
  }
}

void ActionRunner::inspect(const std::string& key, const char* method,
                           const std::stop_token& stop) {
  tell(EntryTable::Inspecting{key, method, parts_.clock.steady()}, stop);
  const EntryReader::Outcome outcome = reader_.read(key);
  if (!outcome.found) {
    parts_.presence.poll_mounts();
    reader_.read_held(key);
  }
  const bool uncertain = !parts_.presence.is_there() || parts_.presence.mounts_changed();
  tell(EntryTable::Inspected{.content = content_of(key),
                             .found = outcome.found,
                             .unreadable = outcome.unreadable,
                             .spool_uncertain = uncertain,
                             .step = step_},
       stop);
}

void ActionRunner::judge(const std::string& key, const std::stop_token& stop) {
  tell(content_of(key), stop);
}

EntryTable::Content ActionRunner::content_of(const std::string& key) const {
  const Inspection* inspection = table_.inspection(key);
  EntryTable::Content content{
      .key = key, .assessment = {}, .now = parts_.clock.steady(), .wall = parts_.clock.now()};
  if (inspection != nullptr && !inspection->content.files.empty())
    content.assessment = parts_.adapter.assess(inspection->content);
  return content;
}

void ActionRunner::verify(const std::string& key, const std::stop_token& stop) {
  if (const CaptureRecord* record = table_.record(key)) {
    if (const auto identity = parts_.check.as_recorded(key, *record))
      return tell(EntryTable::Verified{key, *identity}, stop);
  }
  inspect(key, "scan", stop);
}

void ActionRunner::take(const EntryAction& action, const std::stop_token& stop) {
  tell(taker_.take(action.key, action.whole, stop), stop);
  // While it waits, its files are not written any more.
  const Inspection* inspection = table_.inspection(action.key);
  if (inspection != nullptr && inspection->waits()) reader_.held().drop(action.key);
}

void ActionRunner::leave_to_scan(const EntryAction& action) {
  parts_.scanner.leave(action.key);
  if (!action.first) return;
  parts_.report->change([](CaptureStatus& s) { ++s.overflows; });
  parts_.report->log().warning(
      "CAPTURE_LEFT_TO_SCAN",
      "more entries wait for room in the journal than are kept count of; the others are found by a "
      "scan when there is room, if the scheduler keeps them until then",
      {{"source", parts_.options.name}, {"waiting", table_.waiting().size()}});
}

bool ActionRunner::is_whole(const std::string& key) const {
  const Inspection* inspection = table_.inspection(key);
  return inspection != nullptr && !inspection->content.files.empty() &&
         parts_.adapter.assess(inspection->content).state == Assessment::State::kComplete;
}

// Reads what an entry's directory usually has, again and again while it is being written; true if
// that is the whole entry. If not, the directory is watched from here on.
bool ActionRunner::read_at_once(const std::string& key) {
  const SteadyTime until = parts_.clock.steady() + kReadAtOnce;
  for (int round = 0; reader_.knows_usual_files(); ++round) {
    const EntryReader::Outcome outcome = reader_.read_usual_files(key);
    if (is_whole(key)) return true;
    if (!outcome.found && reader_.held().has(key)) {
      reader_.read_held(key);  // it is gone
      return is_whole(key);
    }
    // The watch, then at least once more: what is written in between is seen by one of the two.
    if (round == 0 && !parts_.watches.add_entry(key)) return false;
    if (round > 0 && (parts_.clock.steady() >= until || outcome.unreadable)) return false;
    if (!outcome.found && round % 4 == 3 && !parts_.access.stat(key)) return false;
  }
  parts_.watches.add_entry(key);
  return false;
}

void ActionRunner::read_early(const std::string& key, const std::stop_token& stop) {
  // Of a name that is known already nobody can tell yet which of its lives this is.
  if (!table_.is_empty(key)) return;
  for (const EntryAction& action :
       table_.on(EntryTable::DirectoryAppeared{key, parts_.clock.steady()})) {
    if (action.kind == EntryAction::Kind::kReadAtOnce) {
      read_at_once(key);
    } else {
      carry_out(action, stop);
    }
  }
}

void ActionRunner::offer_again(bool room, const std::stop_token& stop) {
  WaitingList& waiting = table_.waiting();
  // One round over those that wait now; what is refused again moves to the end.
  std::size_t left = waiting.begin_round(parts_.clock.steady(), room);
  for (; left > 0 && !stop.stop_requested(); --left) {
    WaitingList::Item item = waiting.take();
    const Inspection* inspection = table_.inspection(item.key);
    if (inspection == nullptr || !inspection->waits()) continue;
    const bool refused =
        waiting.is_too_large(item.bytes) ||
        (item.mtime_ns != 0 &&
         parts_.journal.refuses(parts_.options.name,
                                {.entry = item.key, .identity = {.mtime_ns = item.mtime_ns}}));
    if (refused) {
      waiting.keep(std::move(item));
    } else {
      tell(EntryTable::Offered{item.key}, stop);
    }
  }
}

void ActionRunner::give_up_waiting(const std::stop_token& stop) {
  std::vector<std::string> lost;
  for (const WaitingList::Item& item : table_.waiting().items()) {
    const Inspection* inspection = table_.inspection(item.key);
    if (inspection != nullptr && inspection->waits() && parts_.check.is_gone(item.key))
      lost.push_back(item.key);
  }
  for (const std::string& key : lost) tell(EntryTable::WaitedInVain{key}, stop);
}

void ActionRunner::send_forgotten_marks() {
  if (!forgotten_marks_.empty())
    parts_.journal.forget_marks(parts_.options.name, std::exchange(forgotten_marks_, {}));
}

}  // namespace scriptorium

#include "core/capture/action_runner.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "core/base/fault_point.h"
#include "core/capture/entry_check.h"

namespace scriptorium {
namespace {

// The scheduler writes an entry within a fraction of a millisecond, and may remove it as quickly.
constexpr std::chrono::microseconds kReadAtOnce{400};
constexpr std::size_t kForgottenAtOnce = 1000;

// What is left of a job that could not be redacted.
ParsedJob without_contents(const ParsedJob& parsed) {
  ParsedJob left;
  left.job.id = parsed.job.id;
  left.user = parsed.user;
  left.script_file = parsed.script_file;
  return left;
}

}  // namespace

void ActionRunner::report(const Input& input) {
  push(table_.on(input));
  perform_all();
}

// What follows from an action comes before the actions that were to follow it.
void ActionRunner::push(EntryActions actions) {
  actions_.insert(actions_.begin(), std::make_move_iterator(actions.begin()),
                  std::make_move_iterator(actions.end()));
}

void ActionRunner::perform_all() {
  while (!actions_.empty()) {
    const EntryAction action = std::move(actions_.front());
    actions_.pop_front();
    if (const auto observed = perform(action)) push(table_.on(*observed));
    // A waiting entry is not written any more, so its files need not stay open.
    if (action.kind != EntryAction::Kind::kTake) continue;
    if (const Inspection* inspection = table_.inspection(action.key);
        inspection != nullptr && inspection->waits())
      reader_.held().drop(action.key);
  }
}

std::optional<EntryTable::Input> ActionRunner::perform(const EntryAction& action) {
  using Kind = EntryAction::Kind;
  const std::string& key = action.key;
  switch (action.kind) {
    case Kind::kReadAtOnce:
      if (is_whole(key) || read_at_once(key)) return content_of(key);
      return read(key, "inotify");
    case Kind::kInspect: return read(key, "scan");
    case Kind::kVerify: return verify(key);
    case Kind::kTake: return take(key, action.whole);
    case Kind::kIgnoreEmpty: {
      const auto stat = context_.access.stat(key);
      return EntryTable::Ignored{key, stat ? identity_of("", *stat) : FileIdentity{}};
    }
    case Kind::kWatch:
      if (context_.adapter.classify(key).role == SpoolPath::Role::kEntryDirectory)
        watches_.add_entry(key);
      break;
    case Kind::kRelease:
      watches_.release_entry(key, action.keep_watch);
      reader_.held().drop(key);
      break;
    case Kind::kSetMark:
      if (const CaptureRecord* record = table_.record(key))
        context_.journal.set_mark(context_.options.name, mark_of(key, *record));
      break;
    case Kind::kForgetMark:
      forgotten_marks_.push_back(key);
      if (forgotten_marks_.size() >= kForgottenAtOnce) send_forgotten_marks();
      break;
    case Kind::kCountNumber: scanner_.count_number(key); break;
    case Kind::kCountMissed: context_.report->missed(action.reason); break;
    case Kind::kCountIgnored: context_.report->ignored(action.reason); break;
    case Kind::kCountDuplicate: context_.report->duplicate(); break;
    case Kind::kLeaveToScan: leave_to_scan(action); break;
  }
  return std::nullopt;
}

EntryTable::Input ActionRunner::read(const std::string& key, const char* method) {
  push(table_.on(EntryTable::Inspecting{key, method, context_.clock.steady()}));
  const EntryReader::Outcome outcome = reader_.read(key);
  if (!outcome.found) {
    presence_.poll_mounts();
    reader_.read_held(key);
  }
  const bool uncertain = !presence_.is_there() || presence_.mounts_changed();
  return EntryTable::Inspected{.content = content_of(key),
                               .found = outcome.found,
                               .unreadable = outcome.unreadable,
                               .spool_uncertain = uncertain,
                               .step = step_};
}

EntryTable::Content ActionRunner::content_of(const std::string& key) const {
  const Inspection* inspection = table_.inspection(key);
  EntryTable::Content content{
      .key = key, .assessment = {}, .now = context_.clock.steady(), .wall = context_.clock.now()};
  if (inspection != nullptr && !inspection->content.files.empty())
    content.assessment = context_.adapter.assess(inspection->content);
  return content;
}

EntryTable::Input ActionRunner::verify(const std::string& key) {
  if (const CaptureRecord* record = table_.record(key)) {
    if (const auto identity = as_recorded(context_, key, *record))
      return EntryTable::Verified{key, *identity};
  }
  return read(key, "scan");
}

void ActionRunner::leave_to_scan(const EntryAction& action) {
  scanner_.leave(action.key);
  if (!action.first) return;
  context_.report->change([](CaptureStatus& s) { ++s.overflows; });
  context_.report->log().warning(
      "CAPTURE_LEFT_TO_SCAN",
      "more entries wait for room in the journal than are kept count of; the others are found by a "
      "scan when there is room, if the scheduler keeps them until then",
      {{"source", context_.options.name}, {"waiting", table_.waiting().size()}});
}

bool ActionRunner::is_whole(const std::string& key) const {
  const Inspection* inspection = table_.inspection(key);
  return inspection != nullptr && !inspection->content.files.empty() &&
         context_.adapter.assess(inspection->content).state == Assessment::State::kComplete;
}

// Reads the files that an entry usually has, again and again while they are being written; true if
// the entry is whole then. If it is not, its directory is watched from here on.
bool ActionRunner::read_at_once(const std::string& key) {
  const SteadyTime until = context_.clock.steady() + kReadAtOnce;
  for (int round = 0; reader_.knows_usual_files(); ++round) {
    const EntryReader::Outcome outcome = reader_.read_usual_files(key);
    if (is_whole(key)) return true;
    if (!outcome.found && reader_.held().has(key)) {
      reader_.read_held(key);  // it is gone
      return is_whole(key);
    }
    // The watch comes before the second round, so one of the two notices every write.
    if (round == 0 && !watches_.add_entry(key)) return false;
    if (round > 0 && (context_.clock.steady() >= until || outcome.unreadable)) return false;
    if (!outcome.found && round % 4 == 3 && !context_.access.stat(key)) return false;
  }
  watches_.add_entry(key);
  return false;
}

void ActionRunner::read_early(const std::string& key) {
  // If the name is known already, this may be the old entry or a new one of the same name.
  if (!table_.is_empty(key)) return;
  EntryActions actions = table_.on(EntryTable::DirectoryAppeared{key, context_.clock.steady()});
  const bool reads = std::erase_if(actions, [](const EntryAction& action) {
                       return action.kind == EntryAction::Kind::kReadAtOnce;
                     }) > 0;
  push(std::move(actions));
  perform_all();
  if (reads) read_at_once(key);
}

void ActionRunner::offer_again(bool room) {
  WaitingList& waiting = table_.waiting();
  // One round over those that wait now; an entry that is refused again moves to the end.
  std::size_t left = waiting.begin_round(context_.clock.steady(), room);
  for (; left > 0 && !is_stopping(); --left) {
    WaitingList::Item item = waiting.take();
    const Inspection* inspection = table_.inspection(item.key);
    if (inspection == nullptr || !inspection->waits()) continue;
    const bool refused =
        waiting.is_too_large(item.bytes) ||
        (item.mtime_ns != 0 &&
         context_.journal.refuses(context_.options.name,
                                  {.entry = item.key, .identity = {.mtime_ns = item.mtime_ns}}));
    if (!refused) {
      report(EntryTable::Offered{item.key});
    } else if (const std::string key = item.key; !waiting.keep(std::move(item))) {
      report(EntryTable::NotKept{key});
    }
  }
}

void ActionRunner::end_waiting() {
  is_ending_ = true;
  table_.waiting().begin_round(context_.clock.steady(), true);
  std::vector<std::string> held, lost;
  for (const WaitingList::Item& item : table_.waiting().items()) {
    const Inspection* inspection = table_.inspection(item.key);
    if (inspection != nullptr && inspection->is_takable()) held.push_back(item.key);
  }
  for (const std::string& key : held) report(EntryTable::Offered{key});
  for (const WaitingList::Item& item : table_.waiting().items()) {
    const Inspection* inspection = table_.inspection(item.key);
    if (inspection != nullptr && inspection->waits() && is_gone(context_, item.key))
      lost.push_back(item.key);
  }
  for (const std::string& key : lost) report(EntryTable::WaitedInVain{key});
}

void ActionRunner::send_forgotten_marks() {
  if (!forgotten_marks_.empty())
    context_.journal.forget_marks(context_.options.name, std::exchange(forgotten_marks_, {}));
}

// ---- taking

EntryTable::Input ActionRunner::take(const std::string& key, bool whole) {
  const Inspection& inspection = *table_.inspection(key);
  const SpoolEntry& content = inspection.content;
  if (table_.waiting().is_too_large(inspection.bytes))
    return EntryTable::Refused{
        .key = key, .whole = whole, .asked = false, .now = context_.clock.steady()};
  for (const SpoolFile& file : content.files) whole = whole && !file.truncated;
  auto parsed = context_.adapter.parse(content);
  FAULT_POINT("capture.parsed");
  if (!parsed) return unparsable(key, content.files.front().name, parsed.error());
  if (whole) reader_.learn_usual_files(content);
  // Before any rule runs: other rules would make another event of the same entry.
  CaptureRecord record = record_of(
      identity_file(content, parsed->script_file), parsed->script, whole,
      context_.journal.capture_key(original_id(context_.options.origin, content, *parsed)));
  if (const CaptureRecord* made = table_.made_event(key, record.capture_key)) {
    record.event_id = made->event_id;
    return EntryTable::Captured{.key = key, .record = std::move(record), .duplicate = true};
  }
  auto supersedes = superseded_by(key, *parsed);
  MadeEvent made = make_event(content, *std::move(parsed), whole, inspection.method);
  made.event->supersedes = std::move(supersedes);
  if (const auto id = pack_event_id(made.event->id)) record.event_id = *id;
  return offer(key, std::move(made), std::move(record));
}

ActionRunner::MadeEvent ActionRunner::make_event(const SpoolEntry& entry, ParsedJob parsed,
                                                 bool whole, const char* method) const {
  const auto assembled = [&](ParsedJob job, std::vector<Redaction> redactions) {
    return std::make_shared<Event>(assemble(context_.options.origin, entry, std::move(job),
                                            std::move(redactions), whole, method,
                                            context_.clock.now()));
  };
  auto redactions = context_.options.redactor->redact(parsed);
  FAULT_POINT("capture.redacted");
  if (redactions) return {assembled(std::move(parsed), *std::move(redactions)), std::nullopt};
  const std::string& reason = redactions.error().message();
  auto event = assembled(without_contents(parsed), {});
  redact::remove_payload(*event, reason);
  context_.report->note_error(entry.key + ": " + reason);
  context_.report->log().error(
      "REDACTION_FAILED",
      "a job could not be searched for secrets; it becomes a dead letter without its contents",
      {{"source", context_.options.name}, {"entry", printable(entry.key)}, {"reason", reason}});
  return {std::move(event), reason};
}

std::optional<std::string> ActionRunner::superseded_by(const std::string& key,
                                                       const ParsedJob& parsed) const {
  const CaptureRecord* before = table_.record(key);
  const auto key_of = [&](std::string_view beginning, std::int64_t mtime_ns) {
    return context_.journal.capture_key(
        original_id(context_.options.origin, parsed.job.id, mtime_ns, beginning));
  };
  if (before == nullptr || !has_grown(*before, parsed.script, key_of)) return std::nullopt;
  return unpack_event_id(before->event_id);
}

EntryTable::Input ActionRunner::unparsable(const std::string& key, const std::string& file,
                                           const Error& error) {
  const bool vanished = error.kind() == ErrorKind::kVanished;
  if (!vanished) {
    context_.report->note_error(key + ": " + error.message());
    context_.report->log().error(
        "ENTRY_UNPARSABLE",
        "a spool entry could not be turned into an event; it stays in the spool for as long as the "
        "scheduler keeps it",
        {{"source", context_.options.name},
         {"entry", printable(key)},
         {"reason", error.message()}});
  }
  const bool exists = !vanished || !is_gone(context_, context_.adapter.path_of(key, file));
  return EntryTable::Unparsable{
      .key = key, .vanished = vanished, .exists = exists, .message = error.message()};
}

EntryTable::Input ActionRunner::offer(const std::string& key, MadeEvent made,
                                      CaptureRecord record) {
  Journal::Append item;
  item.dead = std::move(made.dead);
  item.source = context_.options.name;
  item.resolve_first = context_.options.resolve_first;
  if (record.marked) item.mark = mark_of(key, record);
  item.capture_key = unpack_event_id(record.capture_key);
  item.durable = count_captured(*made.event, table_.inspection(key)->method);
  item.event = std::move(made.event);
  FAULT_POINT("capture.before_append");
  auto admission = Journal::Admission::kFull;
  if (is_ending_) {
    if (context_.journal.append_beyond_limit(std::move(item)))
      admission = Journal::Admission::kTaken;
  } else if (!waits_for_room_) {
    admission = context_.journal.offer(item, stop_);
  } else if (context_.journal.append(std::move(item), stop_)) {
    admission = Journal::Admission::kTaken;
  }
  if (admission == Journal::Admission::kTaken)
    return EntryTable::Captured{.key = key, .record = std::move(record)};
  return EntryTable::Refused{.key = key,
                             .whole = record.kind == CaptureRecord::Kind::kWhole,
                             .over_share = admission == Journal::Admission::kOverShare,
                             .mtime_ns = record.identity.mtime_ns,
                             .now = context_.clock.steady()};
}

std::function<void(bool fresh)> ActionRunner::count_captured(const Event& event,
                                                             const char* method) const {
  return [report = context_.report, &clock = context_.clock, method, time = event.time,
          redactions = event.redactions, malformed = !event.problems.empty(),
          whole = event.complete, supersedes = event.supersedes.has_value()](bool fresh) {
    const double lag = static_cast<double>(clock.now().nanoseconds - time.nanoseconds) / 1e9;
    report->change([&](CaptureStatus& s) {
      if (!fresh) {
        ++s.duplicates;
        return;
      }
      ++s.captured;
      ++s.by_method[method];
      redact::add(s.redactions, redactions);
      if (!whole) ++s.incomplete;
      if (malformed) ++s.malformed;
      if (supersedes) ++s.superseding;
      if (std::strcmp(method, "scan") == 0) return;
      s.lag_seconds = lag;
      s.close_to_durable.add(lag);
    });
  };
}

}  // namespace scriptorium

#include "core/capture/entry_taker.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/sha256.h"

namespace scriptorium {
namespace {

// True if the event's script begins with what was captured before: then the file has grown, and is
// not another job's.
bool has_grown(const CaptureRecord& before, const Event& event) {
  const EventFile* script = event.file("script");
  if (script == nullptr || before.kind == CaptureRecord::Kind::kIgnored ||
      script->size < before.script_size)
    return false;
  const auto beginning = std::string_view(*script->bytes).substr(0, before.script_size);
  return event_id(event.cluster, event.scheduler, event.kind, event.job.id,
                  before.identity.mtime_ns,
                  sha256_hex(beginning)) == unpack_event_id(before.event_id);
}

CaptureRecord record_of(const Event& event, const SpoolFile& identity, bool whole) {
  CaptureRecord record;
  record.identity = identity_of(identity.name, identity.stat);
  const EventFile* script = event.file("script");
  record.script_size = script != nullptr ? script->size : identity.stat.size;
  if (const auto id = pack_event_id(event.id)) record.event_id = *id;
  record.kind = whole ? CaptureRecord::Kind::kWhole : CaptureRecord::Kind::kPartial;
  // An entry that is gone already cannot come again: only one that stands needs a mark.
  record.marked = identity.stat.links > 0;
  return record;
}

}  // namespace

EntryTable::Input EntryTaker::take(const std::string& key, bool whole,
                                   const std::stop_token& stop) {
  const Inspection& inspection = *table_.inspection(key);
  const SpoolEntry& content = inspection.content;
  if (table_.waiting().is_too_large(inspection.bytes))
    return EntryTable::Refused{.key = key, .whole = whole, .asked = false, .now = clock_.steady()};
  for (const SpoolFile& file : content.files) whole = whole && !file.truncated;
  auto parsed = adapter_.parse(content);
  FAULT_POINT("capture.parsed");
  if (!parsed) return unparsable(key, content, parsed.error());
  if (whole) reader_.learn_usual_files(content);
  const SpoolFile& identity = identity_file(content, parsed->script_file);
  auto event = std::make_shared<Event>(assemble(options_.origin, content, *std::move(parsed),
                                                options_.common.environment, whole,
                                                inspection.method, clock_.now()));
  CaptureRecord record = record_of(*event, identity, whole);
  if (table_.made_event(key, record.event_id))
    return EntryTable::Captured{.key = key, .record = std::move(record), .duplicate = true};
  const CaptureRecord* before = table_.record(key);
  if (before != nullptr && has_grown(*before, *event))
    event->supersedes = unpack_event_id(before->event_id);
  return offer(key, std::move(event), std::move(record), stop);
}

EntryTable::Input EntryTaker::unparsable(const std::string& key, const SpoolEntry& content,
                                         const Error& error) const {
  if (error.kind() == ErrorKind::kVanished) {
    const bool stands = !check_.is_gone(adapter_.path_of(key, content.files.front().name));
    return EntryTable::Unparsable{
        .key = key, .vanished = true, .stands = stands, .message = error.message()};
  }
  report_->note_error(key + ": " + error.message());
  report_->log().error(
      "ENTRY_UNPARSABLE",
      "a spool entry could not be turned into an event; it stays in the spool for as long as the "
      "scheduler keeps it",
      {{"source", options_.name}, {"entry", printable(key)}, {"reason", error.message()}});
  return EntryTable::Unparsable{.key = key, .stands = true, .message = error.message()};
}

EntryTable::Input EntryTaker::offer(const std::string& key, std::shared_ptr<Event> event,
                                    CaptureRecord record, const std::stop_token& stop) {
  Journal::Append item = append_of(key, std::move(event), record);
  FAULT_POINT("capture.before_append");
  auto admission = Journal::Admission::kFull;
  if (!waits_for_room_) {
    admission = journal_.offer(item, stop);
  } else if (journal_.append(std::move(item), stop)) {
    admission = Journal::Admission::kTaken;
  }
  if (admission == Journal::Admission::kTaken)
    return EntryTable::Captured{.key = key, .record = std::move(record)};
  return EntryTable::Refused{.key = key,
                             .whole = record.kind == CaptureRecord::Kind::kWhole,
                             .over_share = admission == Journal::Admission::kOverShare,
                             .mtime_ns = record.identity.mtime_ns,
                             .now = clock_.steady()};
}

Journal::Append EntryTaker::append_of(const std::string& key, std::shared_ptr<Event> event,
                                      const CaptureRecord& record) const {
  Journal::Append item;
  item.source = options_.name;
  item.resolve_first = options_.resolve_first;
  if (record.marked) item.mark = mark_of(key, record);
  item.durable = [report = report_, &clock = clock_, method = table_.inspection(key)->method,
                  time = event->time, malformed = !event->problems.empty(),
                  whole = record.kind == CaptureRecord::Kind::kWhole,
                  supersedes = event->supersedes.has_value()](bool fresh) {
    const double lag = static_cast<double>(clock.now().nanoseconds - time.nanoseconds) / 1e9;
    report->change([&](CaptureStatus& s) {
      if (!fresh) {
        ++s.duplicates;
        return;
      }
      ++s.captured;
      ++s.by_method[method];
      if (!whole) ++s.incomplete;
      if (malformed) ++s.malformed;
      if (supersedes) ++s.superseding;
      if (std::strcmp(method, "scan") == 0) return;
      s.lag_seconds = lag;
      s.close_to_durable.add(lag);
    });
  };
  item.event = std::move(event);
  return item;
}

}  // namespace scriptorium

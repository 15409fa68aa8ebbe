#include "core/capture/assemble.h"

#include "core/base/sha256.h"

namespace scriptorium {
namespace {

constexpr std::string_view kKind = "job.script";

void add_file(Event& event, std::string name, Bytes bytes, std::string sha256) {
  const std::uint64_t size = bytes->size();
  event.files.push_back({std::move(name), size, std::move(sha256), std::move(bytes)});
}

}  // namespace

const SpoolFile& identity_file(const SpoolEntry& entry, std::string_view script_file) {
  const SpoolFile* file = entry.file(script_file);
  return file != nullptr ? *file : entry.files.front();
}

std::string original_id(const EventOrigin& origin, std::string_view job_id, std::int64_t mtime_ns,
                        std::string_view script) {
  return event_id(origin.cluster, origin.scheduler, kKind, job_id, mtime_ns, sha256_hex(script));
}

std::string original_id(const EventOrigin& origin, const SpoolEntry& entry,
                        const ParsedJob& parsed) {
  const SpoolFile& identity = identity_file(entry, parsed.script_file);
  // Without a script, the bytes that there are identify the event.
  const Bytes& script = parsed.script != nullptr ? parsed.script : identity.bytes;
  return original_id(origin, parsed.job.id, identity.stat.mtime_ns, *script);
}

Event assemble(const EventOrigin& origin, const SpoolEntry& entry, ParsedJob parsed,
               std::vector<Redaction> redactions, bool complete, std::string_view capture,
               Timestamp now) {
  const SpoolFile& identity = identity_file(entry, parsed.script_file);
  Event event;
  event.kind = kKind;
  event.time = {identity.stat.mtime_ns};
  event.captured_at = now;
  event.capture = capture;
  event.complete = complete;
  event.cluster = origin.cluster;
  event.scheduler = origin.scheduler;
  event.host = origin.host;
  event.job = std::move(parsed.job);
  event.user = std::move(parsed.user);
  event.problems = std::move(parsed.problems);
  for (const SpoolFile& file : entry.files) {
    if (file.truncated)
      event.problems.push_back(file.name + ": larger than max_file_bytes, cut after " +
                               std::to_string(file.bytes->size()) + " bytes");
  }

  event.redactions = std::move(redactions);

  std::string script_sha256;
  if (parsed.script != nullptr) {
    script_sha256 = sha256_hex(*parsed.script);
    event.script = std::move(parsed.script_info);
    add_file(event, "script", parsed.script, script_sha256);
  }
  if (parsed.environment != nullptr) {
    event.environment_format = parsed.environment_format;
    std::string sha256 = sha256_hex(*parsed.environment);
    add_file(event, "environment", std::move(parsed.environment), std::move(sha256));
  }
  for (auto* files : {&parsed.more_files, &parsed.mixed_files}) {
    for (EventFile& file : *files) {
      std::string sha256 = sha256_hex(*file.bytes);
      add_file(event, std::move(file.name), std::move(file.bytes), std::move(sha256));
    }
  }
  // Without a script, what else is kept identifies the event.
  if (script_sha256.empty())
    script_sha256 = event.files.empty() ? sha256_hex("") : event.files.front().sha256;
  event.id = event_id(event.cluster, event.scheduler, event.kind, event.job.id,
                      identity.stat.mtime_ns, script_sha256);
  event.extra_json = std::move(parsed.extra_json);
  make_text_utf8(event);
  return event;
}

}  // namespace scriptorium

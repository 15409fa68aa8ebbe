#include "core/capture/assemble.h"

#include "core/base/sha256.h"
#include "core/redact/environment.h"

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
               const EnvironmentRule& rule, bool complete, std::string_view capture,
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

  std::string script_sha256;
  if (parsed.script != nullptr) {
    script_sha256 = sha256_hex(*parsed.script);
    event.script = std::move(parsed.script_info);
    add_file(event, "script", parsed.script, script_sha256);
  } else {
    // Without a script, the bytes that there are identify the event.
    script_sha256 = sha256_hex(*identity.bytes);
  }
  // Over the bytes before redaction: other rules, same event.
  event.id = event_id(event.cluster, event.scheduler, event.kind, event.job.id,
                      identity.stat.mtime_ns, script_sha256);

  const bool raw =
      parsed.environment_format == EnvironmentFormat::kRaw || parsed.environment_guessed;
  FilteredEnvironment filtered = raw ? filter_raw_environment(parsed.environment, rule)
                                     : filter_environment(parsed.environment, rule);
  if (filtered.dropped > 0) {
    event.redactions.push_back(
        {raw ? "environment.unparsable" : "environment", "environment", filtered.dropped});
  }
  if (filtered.bytes != nullptr) {
    event.environment_format = parsed.environment_format;
    std::string sha256 = sha256_hex(*filtered.bytes);
    add_file(event, "environment", std::move(filtered.bytes), std::move(sha256));
  }
  for (EventFile& file : parsed.more_files) {
    std::string sha256 = sha256_hex(*file.bytes);
    add_file(event, std::move(file.name), std::move(file.bytes), std::move(sha256));
  }
  for (EventFile& file : parsed.mixed_files) {
    // Treated as an environment that cannot be parsed: all of it or nothing.
    FilteredEnvironment kept = filter_raw_environment(file.bytes, rule);
    if (kept.dropped > 0)
      event.redactions.push_back({"environment.unparsable", file.name, kept.dropped});
    if (kept.bytes == nullptr) continue;
    std::string sha256 = sha256_hex(*kept.bytes);
    add_file(event, std::move(file.name), std::move(kept.bytes), std::move(sha256));
  }
  event.extra_json = std::move(parsed.extra_json);
  make_text_utf8(event);
  return event;
}

}  // namespace scriptorium

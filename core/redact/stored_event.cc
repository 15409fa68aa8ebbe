#include "core/redact/stored_event.h"

#include <algorithm>
#include <utility>

#include "core/base/sha256.h"

namespace scriptorium::redact {
namespace {

// All that rules may change, but not what they say about it.
std::string content_of(const Event& event) {
  Event copy = event;
  copy.redactions.clear();
  return event_json(copy, {.script_text = false, .environment = false});
}

bool has_same_script(const Event& one, const Event& other) {
  const EventFile* a = one.file("script");
  const EventFile* b = other.file("script");
  return (a == nullptr) == (b == nullptr) && (a == nullptr || a->sha256 == b->sha256);
}

// The id is over the script, or without one over the bytes that there were.
std::string id_of_kept(const Event& event) {
  const EventFile* file = event.file("script");
  if (file == nullptr && !event.files.empty()) file = &event.files.front();
  return event_id(event.cluster, event.scheduler, event.kind, event.job.id, event.time.nanoseconds,
                  file != nullptr ? file->sha256 : sha256_hex(""));
}

void replace_ids(const Event& stored, Event& after) {
  if (stored.kind != "job.script") return;  // other ids are not over what a user wrote
  if (stored.file("script") != nullptr && has_same_script(stored, after)) return;
  // An earlier capture of this job, whose id is over much the same bytes.
  after.supersedes.reset();
  after.id = id_of_kept(after);
  if (!after.replaces) return;
  after.replaces = after.id;
  after.id = owned_event_id(*after.replaces, after.user.id.value_or(""));
}

}  // namespace

std::vector<Redaction> added_redactions(const Event& before, const Event& after) {
  std::vector<Redaction> added;
  for (const Redaction& now : after.redactions) {
    const auto old = std::ranges::find_if(before.redactions, [&](const Redaction& r) {
      return r.rule == now.rule && r.where == now.where && r.kept == now.kept;
    });
    Redaction item = now;
    if (old != before.redactions.end()) item.count -= std::min(item.count, old->count);
    if (item.count > 0) added.push_back(std::move(item));
  }
  return added;
}

Result<StoredRedaction> redact_stored(const Redactor& redactor, const Event& stored) {
  auto after = std::make_shared<Event>(stored);
  if (auto done = redactor.redact(*after); !done) return done.error();
  StoredRedaction result{.event = nullptr, .found = added_redactions(stored, *after)};
  if (content_of(stored) == content_of(*after)) {
    // What was removed earlier may be found once more, but nothing of it is there any more.
    std::erase_if(result.found, [](const Redaction& r) { return !r.kept; });
    return result;
  }
  std::erase_if(after->files, [&](const EventFile& file) {
    if (file.bytes != nullptr) return false;
    after->problems.push_back(file.name + ": not in the archive; its hash was removed");
    return true;
  });
  if (after->file("environment") == nullptr) after->environment_format = EnvironmentFormat::kNone;
  replace_ids(stored, *after);
  result.event = std::move(after);
  return result;
}

}  // namespace scriptorium::redact

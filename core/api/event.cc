#include "core/api/event.h"

#include "core/base/ascii.h"
#include "core/base/sha256.h"

namespace scriptorium {

Bytes make_bytes(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

const EventFile* Event::file(std::string_view name) const noexcept {
  for (const EventFile& f : files) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

std::uint64_t Event::bytes_size() const noexcept {
  std::uint64_t sum = 0;
  for (const EventFile& f : files) sum += f.size;
  return sum;
}

std::uint64_t Event::memory_size() const noexcept {
  std::uint64_t sum =
      sizeof(Event) + id.capacity() + cluster.capacity() + host.capacity() + extra_json.capacity();
  const auto add = [&](const std::string& text) { sum += sizeof(std::string) + text.capacity(); };
  const auto add_known = [&](const std::optional<std::string>& text) {
    sum += text ? text->capacity() : 0;
  };
  for (const EventFile& f : files) {
    sum += sizeof(EventFile) + f.sha256.capacity() +
           (f.bytes ? sizeof(std::string) + f.bytes->capacity() : 0);
  }
  if (script) {
    add_known(script->interpreter);
    for (const std::string& text : script->directives) add(text);
    for (const std::string& text : script->modules) add(text);
    for (const Software& used : script->software) {
      add(used.kind);
      add(used.name);
    }
  }
  for (const auto* text : {&job.name, &job.account, &job.partition, &job.qos, &job.work_dir,
                           &user.name, &user.group_name, &user.unverified_reason}) {
    add_known(*text);
  }
  if (job.array) add_known(job.array->task_spec);
  for (const std::string& text : problems) add(text);
  for (const std::string& text : lossy) add(text);
  for (const std::string& text : parts) add(text);
  for (const Redaction& redaction : redactions) {
    sum += sizeof(Redaction) + redaction.rule.capacity() + redaction.where.capacity() +
           redaction.lines.capacity() * sizeof(std::uint32_t);
    for (const std::string& name : redaction.names) add(name);
  }
  return sum;
}

std::string event_id(const std::vector<std::string_view>& parts) {
  Sha256 hash;
  for (const std::string_view part : parts) {
    hash.update(std::to_string(part.size()));
    hash.update(":");
    hash.update(part);
  }
  return hash.finish_hex();
}

std::string owned_event_id(std::string_view replaced_id, std::string_view uid) {
  return event_id({"owner", replaced_id, uid});
}

std::string event_id(std::string_view cluster, std::string_view scheduler, std::string_view kind,
                     std::string_view job_id, std::int64_t script_mtime_ns,
                     std::string_view script_sha256) {
  return event_id(
      {cluster, scheduler, kind, job_id, std::to_string(script_mtime_ns), script_sha256});
}

std::vector<Variable> split_environment(std::string_view environment) {
  std::vector<Variable> result;
  while (!environment.empty()) {
    const std::string_view text = take_until(environment, '\0');
    const std::size_t equals = text.find('=', 1);
    if (text.empty() || equals == std::string_view::npos) {
      result.push_back({text, {}});
    } else {
      result.push_back({text.substr(0, equals), text.substr(equals + 1)});
    }
  }
  return result;
}

}  // namespace scriptorium

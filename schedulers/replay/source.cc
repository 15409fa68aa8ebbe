#include "schedulers/replay/source.h"

#include <algorithm>

#include "core/api/kit/path_option.h"

namespace scriptorium::replay {
namespace {

const Schema<ReplayConfig>& schema() {
  static const Schema<ReplayConfig> kSchema{
      required("folder", &ReplayConfig::folder,
               "The folder that contains one folder per job; an absolute path."),
      option("scheduler", &ReplayConfig::scheduler, "The name of the scheduler in the events."),
  };
  return kSchema;
}

}  // namespace

std::vector<OptionInfo> describe() { return schema().options(); }

ReplayConfig read_config(const Table& table, Problems& problems) {
  ReplayConfig config = schema().parse(table, problems);
  check_absolute_path(table, "folder", problems, EmptyPath::kAllowed);
  if (config.scheduler.empty()) problems.add(table, "scheduler", "empty", "a name");
  return config;
}

SpoolPath ReplaySource::classify(std::string_view path) const {
  if (path.empty() || path.front() == '.') return {};
  const std::string_view entry = path.substr(0, path.find('/'));
  if (entry.size() == path.size()) return {SpoolPath::Role::kEntryDirectory, entry, {}};
  const std::string_view file = path.substr(entry.size() + 1);
  if (file != "script" && file != "environment") return {};
  return {SpoolPath::Role::kEntryFile, entry, file};
}

Assessment ReplaySource::assess(const SpoolEntry& entry) const {
  const SpoolFile* script = entry.file("script");
  if (script == nullptr) return {.reason = "script missing"};
  if (script->bytes->empty()) return {.reason = "script empty"};
  return {.state = Assessment::State::kComplete};
}

Result<ParsedJob> ReplaySource::parse(const SpoolEntry& entry) const {
  const SpoolFile* script = entry.file("script");
  if (script == nullptr) return Error(ErrorKind::kVanished, "the entry has no script");
  ParsedJob parsed;
  parsed.job.id = entry.key;
  parsed.script = script->bytes;
  if (const SpoolFile* environment = entry.file("environment")) {
    std::string text = *environment->bytes;
    // As /proc/PID/environ has it, or as env(1) prints it: one NAME=value a line.
    if (text.find('\0') == std::string::npos) std::replace(text.begin(), text.end(), '\n', '\0');
    if (!text.empty() && text.back() != '\0') text += '\0';
    parsed.environment = make_bytes(std::move(text));
    parsed.environment_format = EnvironmentFormat::kNulEnded;
  }
  return parsed;
}

}  // namespace scriptorium::replay

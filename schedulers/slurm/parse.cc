#include "schedulers/slurm/parse.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "core/api/job_script.h"
#include "core/base/ascii.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

constexpr std::string_view kHash = "hash.";
constexpr std::string_view kJob = "job.";
constexpr std::string_view kEnvironment = "environment";
constexpr std::string_view kScript = "script";
constexpr std::size_t kHeader = sizeof(std::uint32_t);
// Job ids have 32 bits today. More digits are let through, so that wider ones would not be lost in
// silence.
constexpr std::size_t kMaxIdDigits = 18;

bool is_job_id(std::string_view text) noexcept {
  return text.size() <= kMaxIdDigits && !text.starts_with('0') && is_all_digits(text);
}

bool ends_with_nul(const SpoolFile& file) noexcept {
  return file.bytes != nullptr && !file.bytes->empty() && file.bytes->back() == '\0';
}

std::string_view bytes_of(const SpoolFile& file) noexcept {
  return file.bytes ? std::string_view(*file.bytes) : std::string_view();
}

void read_environment(const SpoolFile& file, ParsedJob& parsed) {
  const std::string_view bytes = bytes_of(file);
  const EnvironmentShape shape = environment_shape(bytes);
  if (!file.truncated && shape.state == EnvironmentShape::State::kWhole) {
    parsed.environment = make_bytes(std::string(bytes.substr(kHeader)));
    parsed.environment_format = EnvironmentFormat::kNulEnded;
    return;
  }
  parsed.environment = file.bytes ? file.bytes : make_bytes({});
  parsed.environment_format = EnvironmentFormat::kRaw;
  if (file.truncated) return;  // core reports it
  if (bytes.size() < kHeader) {
    parsed.problems.push_back("environment: " + std::to_string(bytes.size()) +
                              " bytes, too short for its count");
  } else if (shape.state == EnvironmentShape::State::kMalformed) {
    parsed.problems.push_back("environment: count " + std::to_string(shape.count) +
                              ", more bytes after that many strings");
  } else {
    parsed.problems.push_back("environment: count " + std::to_string(shape.count) + ", " +
                              std::to_string(shape.strings) + " strings");
  }
}

// Of a job whose environment was read, if it has one.
DirectiveSyntax syntax_of(const ParsedJob& parsed) {
  DirectiveSyntax syntax = kSbatchSyntax;
  if (parsed.environment_format == EnvironmentFormat::kNulEnded) {
    constexpr std::string_view kIgnore = "\0SBATCH_IGNORE_PBS="sv;  // whatever its value
    syntax.translated = !parsed.environment->starts_with(kIgnore.substr(1)) &&
                        parsed.environment->find(kIgnore) == std::string::npos;
  }
  return syntax;
}

void read_script(const SpoolFile& file, const DirectiveSyntax& syntax, ParsedJob& parsed) {
  std::string_view bytes = bytes_of(file);
  if (!file.truncated && ends_with_nul(file)) {
    bytes.remove_suffix(1);
  } else if (!file.truncated) {  // core says it of a file that is cut
    parsed.problems.emplace_back("script: its final NUL is missing, so its end may be");
  }
  if (const void* nul = bytes.empty() ? nullptr : std::memchr(bytes.data(), '\0', bytes.size())) {
    const auto offset = static_cast<const char*>(nul) - bytes.data();
    parsed.problems.push_back("script: NUL byte inside, at offset " + std::to_string(offset));
  }
  parsed.script = make_bytes(std::string(bytes));
  parsed.script_info = read_script_info(bytes, syntax);
}

// The user writes the environment, so this is for reading comfort only, until slurmctld has
// answered.
void read_hints(std::string_view script, const DirectiveSyntax& syntax, ParsedJob& parsed) {
  std::optional<std::string_view> name;
  std::optional<std::string_view> work_dir;
  if (parsed.environment_format == EnvironmentFormat::kNulEnded) {
    std::string_view rest = *parsed.environment;
    while (!rest.empty()) {
      const std::string_view variable = take_until(rest, '\0');
      if (variable.starts_with("SLURM_JOB_NAME="sv))
        name = variable.substr("SLURM_JOB_NAME="sv.size());
      if (variable.starts_with("SLURM_SUBMIT_DIR="sv))
        work_dir = variable.substr("SLURM_SUBMIT_DIR="sv.size());
    }
  }
  if (name && !name->empty() && name->size() <= kMaxJobName) {
    parsed.job.name = std::string(*name);
  } else if (!name) {
    parsed.job.name = job_name_directive(script, syntax);
  }
  if (work_dir && work_dir->starts_with('/') && work_dir->size() <= kMaxPath)
    parsed.job.work_dir = std::string(*work_dir);
}

}  // namespace

SpoolPath classify_path(std::string_view path) noexcept {
  const SpoolPath foreign;
  if (!path.starts_with(kHash) || path.size() < kHash.size() + 1 || !is_digit(path[kHash.size()]))
    return foreign;
  const char digit = path[kHash.size()];
  std::string_view rest = path.substr(kHash.size() + 1);
  if (rest.empty()) return {SpoolPath::Role::kDirectory, {}, {}};
  if (!rest.starts_with('/')) return foreign;
  rest.remove_prefix(1);
  if (!rest.starts_with(kJob)) return foreign;
  std::string_view id = rest.substr(kJob.size());
  id = id.substr(0, id.find('/'));
  if (!is_job_id(id) || id.back() != digit)
    return foreign;  // slurmctld files N under the last digit of N
  const std::string_view after = rest.substr(kJob.size() + id.size());
  const std::string_view entry = path.substr(0, path.size() - after.size());
  if (after.empty()) return {SpoolPath::Role::kEntryDirectory, entry, {}};
  const std::string_view file = after.substr(1);
  // Burst-buffer plugins put `path`, `pathfile` and others beside them.
  if (file != kEnvironment && file != kScript) return foreign;
  return {SpoolPath::Role::kEntryFile, entry, file};
}

EnvironmentShape environment_shape(std::string_view bytes) noexcept {
  EnvironmentShape shape;
  if (bytes.size() < kHeader) return shape;
  std::memcpy(&shape.count, bytes.data(), kHeader);
  const char* at = bytes.data() + kHeader;
  const char* const end = bytes.data() + bytes.size();
  while (shape.strings < shape.count && at != end) {
    const void* nul = std::memchr(at, '\0', static_cast<std::size_t>(end - at));
    if (nul == nullptr) return shape;
    at = static_cast<const char*>(nul) + 1;
    ++shape.strings;
  }
  if (shape.strings < shape.count) return shape;
  shape.state = at == end ? EnvironmentShape::State::kWhole : EnvironmentShape::State::kMalformed;
  return shape;
}

Assessment assess_entry(const SpoolEntry& entry) noexcept {
  using State = Assessment::State;
  const SpoolFile* environment = entry.file(kEnvironment);
  const SpoolFile* script = entry.file(kScript);
  bool over = false;  // a file is larger than we read, so its end was not seen
  if (environment == nullptr) {
    // burst_buffer plugins give each task of an array a directory with nothing but a hard link to
    // the array's script.
    if (script != nullptr && script->stat.links >= 2 &&
        (script->truncated || ends_with_nul(*script)))
      return {.state = State::kDuplicate};
    return {.state = State::kIncomplete, .reason = "environment missing"};
  }
  // Too many strings never heal by waiting: such an entry is taken as it is, and parse_entry() says
  // what is wrong.
  if (environment_shape(bytes_of(*environment)).state == EnvironmentShape::State::kShort) {
    if (!environment->truncated)
      return {.state = State::kIncomplete, .reason = "environment short"};
    over = true;
  }
  if (script == nullptr) return {.state = State::kIncomplete, .reason = "script missing"};
  if (script->truncated) {
    over = true;
  } else if (!ends_with_nul(*script)) {
    return {.state = State::kIncomplete, .reason = "script short"};
  }
  if (over) return {.state = State::kSettling, .settle = 1s};
  return {.state = State::kComplete};
}

Result<ParsedJob> parse_entry(const SpoolEntry& entry) {
  const SpoolPath path = classify_path(entry.key);
  if (path.role != SpoolPath::Role::kEntryDirectory)
    return Error(ErrorKind::kPermanent, "not an entry of slurmctld's spool");
  const SpoolFile* environment = entry.file(kEnvironment);
  const SpoolFile* script = entry.file(kScript);
  if (environment == nullptr && script == nullptr)
    return Error(ErrorKind::kVanished, "the entry has no file");

  ParsedJob parsed;
  parsed.job.id = std::string(path.entry.substr(path.entry.rfind('.') + 1));
  parsed.script_file = std::string(script != nullptr ? kScript : kEnvironment);
  if (environment != nullptr) {
    read_environment(*environment, parsed);
  } else if (script->stat.links < 2) {
    parsed.problems.emplace_back("environment: missing");
  }
  const DirectiveSyntax syntax = syntax_of(parsed);
  if (script != nullptr) {
    read_script(*script, syntax, parsed);
  } else {
    parsed.problems.emplace_back("script: missing");
  }
  read_hints(parsed.script ? std::string_view(*parsed.script) : std::string_view(), syntax, parsed);
  return parsed;
}

}  // namespace scriptorium::slurm

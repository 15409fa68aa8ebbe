#include "core/import/read_entry.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/api/job_script.h"
#include "core/base/ascii.h"

namespace scriptorium::import {
namespace {

using namespace std::literals;

constexpr std::size_t kHeader = sizeof(std::uint32_t);
constexpr std::size_t kMaxPath = 4096;
constexpr std::int64_t kDay = 86'400'000'000'000;

bool is_name_start(char c) noexcept { return is_letter(c) || c == '_'; }

// "NAME=", or "BASH_FUNC_name%%=" and "BASH_FUNC_name()=", as shells export them.
bool begins_variable(std::string_view line) noexcept {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos || equals == 0 || !is_name_start(line.front())) return false;
  std::string_view name = line.substr(0, equals);
  if (name.starts_with("BASH_FUNC_")) return true;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_name_start(c) || is_digit(c); });
}

// Lines as NUL-ended strings. A line that does not begin a variable continues the previous one.
std::string strings_of_lines(std::string_view text) {
  std::string strings;
  strings.reserve(text.size() + 1);
  bool first = true;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (!first) strings += begins_variable(line) ? '\0' : '\n';
    strings += line;
    first = false;
  }
  if (!strings.empty()) strings += '\0';
  return strings;
}

// The scheduler's format: a 32-bit count, then that many NUL-ended strings.
ReadEnvironment spool_environment(std::string_view bytes) {
  ReadEnvironment read;
  read.spool_bytes = true;
  std::uint32_t count = 0;
  std::memcpy(&count, bytes.data(), kHeader);
  const std::string_view strings = bytes.substr(kHeader);
  const auto ended = static_cast<std::uint64_t>(std::count(strings.begin(), strings.end(), '\0'));
  if (ended == count && (strings.empty() || strings.back() == '\0')) {
    read.bytes = std::string(strings);
    return read;
  }
  read.bytes = std::string(bytes);
  read.format = EnvironmentFormat::kRaw;
  read.problem =
      "environment: count " + std::to_string(count) + ", " + std::to_string(ended) + " strings";
  return read;
}

// job_archive's reader removes every byte for which isspace() is true, then replaces each NUL by a
// newline. So each line is a variable, preceded by the 32-bit count (mostly "X\n\n\n").
ReadEnvironment stripped_environment(std::string_view bytes) {
  ReadEnvironment read;
  const std::size_t header_end = bytes.substr(0, kHeader).rfind("\n\n");
  if (header_end != std::string_view::npos) bytes.remove_prefix(header_end + 2);
  const bool stripped = bytes.find_first_of(" \t") == std::string_view::npos;
  if (stripped) {
    read.bytes = std::string(bytes);
    if (!read.bytes.empty() && read.bytes.back() != '\n') read.bytes += '\n';
    std::replace(read.bytes.begin(), read.bytes.end(), '\n', '\0');
    read.problem =
        "environment: blanks and newlines in values are lost, as job_archive leaves them out";
  } else {
    read.bytes = strings_of_lines(bytes);
    read.guessed = true;
    read.problem = "environment: a single text, so the end of a value of several lines is a guess";
  }
  return read;
}

// For convenience only: the user controls the environment.
void read_hints(std::string_view strings, Job& job) {
  for (const Variable& variable : split_environment(strings)) {
    if (variable.name == "SLURM_JOB_NAME" && !variable.value.empty() &&
        variable.value.size() <= kMaxJobName)
      job.name = std::string(variable.value);
    if (variable.name == "SLURM_SUBMIT_DIR" && variable.value.starts_with('/') &&
        variable.value.size() <= kMaxPath)
      job.work_dir = std::string(variable.value);
  }
}

// The time of the event; adds to `problems` if it is not the file's modification time.
std::int64_t time_of(const FileStat& stat, const std::optional<Period>& period,
                     std::vector<std::string>& problems) {
  const std::int64_t time = job_time(stat.mtime_ns, period);
  if (time != stat.mtime_ns) {
    problems.push_back("time: the file's own, " +
                       format_rfc3339({stat.mtime_ns}, TimePrecision::kSeconds) +
                       ", is not on its folder's date; the folder's date counts");
  }
  return time;
}

// Facts from the script's text: the directives of whichever submit command it is for, and the job's
// name.
void read_script(std::string_view script, ParsedJob& parsed) {
  bool is_sbatch = false;
  for_each_directive(script, kSbatchSyntax, [&](std::string_view) {
    is_sbatch = true;
    return false;
  });
  const DirectiveSyntax& syntax = is_sbatch ? kSbatchSyntax : kQsubSyntax;
  parsed.script_info = read_script_info(script, syntax);
  if (!parsed.job.name) parsed.job.name = job_name_directive(script, syntax);
}

Result<ReadJob> redacted_job(const EventOrigin& origin, const SpoolEntry& entry, ParsedJob parsed,
                             const redact::Redactor& redactor, bool complete, Timestamp now) {
  std::string original = original_id(origin, entry, parsed);
  auto redactions = redactor.redact(parsed);
  if (!redactions) return redactions.error();
  return ReadJob{.event = assemble(origin, entry, std::move(parsed), *std::move(redactions),
                                   complete, "import", now),
                 .original_id = std::move(original)};
}

}  // namespace

std::int64_t job_time(std::int64_t mtime_ns, const std::optional<Period>& period) noexcept {
  if (!period || (mtime_ns >= period->begin - kDay && mtime_ns < period->end + kDay))
    return mtime_ns;
  return period->begin;
}

ReadEnvironment read_environment(TreeFormat format, std::string_view bytes) {
  if (format == TreeFormat::kJobArchive) return stripped_environment(bytes);
  if (bytes.size() >= kHeader && bytes.find('\0') != std::string_view::npos)
    return spool_environment(bytes);
  ReadEnvironment read;
  read.bytes = strings_of_lines(bytes);
  read.guessed = true;
  read.problem = "environment: a single text, so the end of a value of several lines is a guess";
  return read;
}

Result<ReadJob> make_event(TreeFormat format, TreeJob job, const EventOrigin& origin,
                           const redact::Redactor& redactor, Timestamp now) {
  ParsedJob parsed;
  parsed.job.id = std::move(job.path.job_id);
  parsed.job.name = std::move(job.path.job_name);
  parsed.user.name = std::move(job.path.user);
  job.script.stat.mtime_ns = time_of(job.script.stat, job.path.period, parsed.problems);

  bool spool_bytes = format == TreeFormat::kJobArchive;  // which copies the script unchanged
  if (job.environment) {
    ReadEnvironment read = read_environment(format, *job.environment->bytes);
    spool_bytes = spool_bytes || read.spool_bytes;
    if (!read.problem.empty()) parsed.problems.push_back(std::move(read.problem));
    if (read.format == EnvironmentFormat::kNulEnded) read_hints(read.bytes, parsed.job);
    parsed.environment = make_bytes(std::move(read.bytes));
    parsed.environment_format = read.format;
    parsed.environment_guessed = read.guessed;
  } else if (format != TreeFormat::kSavescript) {
    parsed.problems.emplace_back("environment: missing");
  }

  bool complete = !job.script.truncated;
  std::string_view script = *job.script.bytes;
  if (complete && script.ends_with('\0')) {
    script.remove_suffix(1);  // the NUL that ends a script in the spool
  } else if (complete && spool_bytes) {
    complete = false;
    parsed.problems.emplace_back("script: its final NUL is missing, so its end may be");
  }
  parsed.script = make_bytes(std::string(script));
  read_script(script, parsed);

  SpoolEntry entry;
  entry.key = job.path.entry;
  job.script.name = "script";
  entry.files.push_back(std::move(job.script));
  if (job.environment) {
    job.environment->name = "environment";
    entry.files.push_back(*std::move(job.environment));
  }
  return redacted_job(origin, entry, std::move(parsed), redactor, complete, now);
}

Result<ReadJob> make_event(const SpoolAdapter& adapter, SpoolEntry entry,
                           std::optional<Period> period, const EventOrigin& origin,
                           const redact::Redactor& redactor, Timestamp now) {
  auto parsed = adapter.parse(entry);
  if (!parsed) return parsed.error();
  parsed->user.verified = false;
  bool complete = true;
  for (SpoolFile& file : entry.files) {
    complete = complete && !file.truncated;
    if (file.name == parsed->script_file)
      file.stat.mtime_ns = time_of(file.stat, period, parsed->problems);
  }
  return redacted_job(origin, entry, *std::move(parsed), redactor, complete, now);
}

}  // namespace scriptorium::import

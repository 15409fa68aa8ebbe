#include "core/cli/job_text.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"

namespace scriptorium::cli {
namespace {

constexpr std::size_t kNoLimit = 1U << 20;

std::string one_line(std::string_view text) {
  std::string blanks(text);
  std::replace(blanks.begin(), blanks.end(), '\t', ' ');
  return printable(blanks, kNoLimit);
}

std::string share_text(const std::optional<double>& ratio,
                       const std::optional<std::uint64_t>& count) {
  if (!count) return {};
  if (!ratio) return std::to_string(*count);
  return std::to_string(std::lround(*ratio * 100)) + " % of " + std::to_string(*count);
}

}  // namespace

std::string local_time(Timestamp time) { return local_text(time).substr(0, 16); }

std::string shown(const std::optional<std::string>& text) {
  return text ? printable(*text) : std::string{};
}

std::string user_text(const JobRow& job) {
  if (!job.user) return job.uid ? "uid " + printable(*job.uid) : std::string{};
  return printable(*job.user) + (job.verified ? "" : "?");
}

std::string state_text(const JobRow& job) {
  std::string text = shown(job.state);
  if (job.runs > 0) {
    const std::string of = std::to_string(job.runs);
    return job.failed_runs > 0 ? std::to_string(job.failed_runs) + " of " + of + " failed"
                               : of + " " + text;
  }
  if (job.exit_signal.value_or(0) != 0)
    return text + " (signal " + std::to_string(*job.exit_signal) + ")";
  if (job.exit_code.value_or(0) != 0) return text + " (" + std::to_string(*job.exit_code) + ")";
  return text;
}

bool succeeded(const JobRow& job) {
  return job.state == "COMPLETED" && job.exit_code.value_or(0) == 0 &&
         job.exit_signal.value_or(0) == 0;
}

Paint state_paint(const JobRow& job) {
  if (!job.state || job.state == "RUNNING" || job.state == "PENDING") return Paint::kNone;
  if (succeeded(job)) return Paint::kGood;
  return job.state->starts_with("CANCELLED") || job.state == "PREEMPTED" ? Paint::kWarning
                                                                         : Paint::kBad;
}

std::string elapsed_text(const JobRow& job) {
  return job.elapsed_seconds ? format_seconds(*job.elapsed_seconds) : std::string{};
}

std::string memory_text(const JobRow& job) {
  if (!job.memory_peak_bytes)
    return job.memory_limit_bytes ? "of " + format_bytes(*job.memory_limit_bytes) : std::string{};
  return format_bytes(*job.memory_peak_bytes) +
         (job.memory_limit_bytes ? " of " + format_bytes(*job.memory_limit_bytes) : "");
}

std::string cpu_text(const JobRow& job) { return share_text(job.cpu_ratio, job.cpus); }
std::string gpu_text(const JobRow& job) { return share_text(job.gpu_ratio, job.gpus); }

std::string job_line(const JobRow& job) {
  std::string text = printable(job.id);
  for (const std::string& part :
       {shown(job.name), user_text(job), local_time(job.time), state_text(job)}) {
    if (!part.empty()) text += "  " + part;
  }
  return text;
}

std::string hit_line(const Searchable::Line& line, const Console& console) {
  const bool matches = !line.marks.empty();
  const std::string number = std::to_string(line.number);
  std::string text = "    " + std::string(number.size() < 4 ? 4 - number.size() : 0, ' ');
  text += line.part == JobPart::kEnvironment ? "env " + number : number;
  text += matches ? ": " : "- ";
  const std::string_view bytes = line.text;
  std::size_t done = 0;
  for (const auto& [begin, end] : line.marks) {
    if (begin < done || end > bytes.size() || begin > end) continue;
    text += one_line(bytes.substr(done, begin - done));
    const std::string found = one_line(bytes.substr(begin, end - begin));
    text += console.colour ? "\033[1;31m" + found + "\033[0m" : found;
    done = end;
  }
  return text + one_line(bytes.substr(done));
}

}  // namespace scriptorium::cli

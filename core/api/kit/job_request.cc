#include "core/api/kit/job_request.h"

#include <algorithm>
#include <cmath>

#include "core/base/ascii.h"

namespace scriptorium {
namespace {

constexpr double kMiB = 1048576;
constexpr double kGiB = 1024 * kMiB;

// "240M", "12G".
std::string memory_words(double bytes) {
  if (bytes <= 10 * kMiB) return "10M";
  if (bytes < 4 * kGiB)
    return std::to_string(std::llround(std::ceil(bytes / kMiB / 10) * 10)) + "M";
  return std::to_string(std::llround(std::ceil(bytes / kGiB))) + "G";
}

std::string clock(long long hours, long long seconds) {
  const auto two = [](long long number) {
    return (number < 10 ? "0" : "") + std::to_string(number);
  };
  return two(hours) + ":" + two(seconds % 3600 / 60) + ":" + two(seconds % 60);
}

void add_for_slurm(const JobRequest& request, std::vector<std::string>& lines) {
  if (request.cpus) {
    lines.push_back("--cpus-per-task=" + std::to_string(*request.cpus));
    lines.emplace_back("--ntasks=1");
  }
  if (request.memory_bytes)
    lines.push_back("--mem=" + memory_words(static_cast<double>(*request.memory_bytes)));
  if (request.time_limit_seconds) {
    const auto whole = static_cast<long long>(std::ceil(*request.time_limit_seconds));
    const long long days = whole / 86400;
    lines.push_back("--time=" + (days > 0 ? std::to_string(days) + "-" : "") +
                    clock(whole % 86400 / 3600, whole));
  }
  if (request.gpus) lines.push_back("--gpus=" + std::to_string(*request.gpus));
}

void add_for_pbs(const JobRequest& request, std::uint32_t nodes, std::vector<std::string>& lines) {
  if (request.cpus) lines.push_back("-l nodes=1:ppn=" + std::to_string(*request.cpus));
  if (request.memory_bytes)
    lines.push_back(
        "-l mem=" + to_lower(memory_words(static_cast<double>(*request.memory_bytes) * nodes)) +
        "b");
  if (request.time_limit_seconds) {
    const auto whole = static_cast<long long>(std::ceil(*request.time_limit_seconds));
    lines.push_back("-l walltime=" + clock(whole / 3600, whole));
  }
}

// Memory is a resource of the site's own there, and a parallel environment has the site's name.
void add_for_grid_engine(const JobRequest& request, std::vector<std::string>& lines) {
  if (!request.time_limit_seconds) return;
  const auto whole = static_cast<long long>(std::ceil(*request.time_limit_seconds));
  lines.push_back("-l h_rt=" + clock(whole / 3600, whole));
}

// One line, since a second `-l` is an alternative to the first one.
void add_for_oar(const JobRequest& request, std::vector<std::string>& lines) {
  std::string line;
  if (request.cpus) line = "/nodes=1/core=" + std::to_string(*request.cpus);
  if (request.time_limit_seconds) {
    const auto whole = static_cast<long long>(std::ceil(*request.time_limit_seconds));
    line += (line.empty() ? "walltime=" : ",walltime=") + clock(whole / 3600, whole);
  }
  if (!line.empty()) lines.push_back("-l " + line);
}

}  // namespace

std::uint64_t memory_to_ask_for(double needed_bytes) noexcept {
  return static_cast<std::uint64_t>(std::ceil(needed_bytes * 1.2));
}

double time_to_ask_for(double needed_seconds) noexcept {
  return std::max(300.0, std::ceil(needed_seconds * 1.5 / 60) * 60);
}

std::vector<std::string> request_lines(std::string_view word, const JobRequest& request,
                                       std::uint32_t nodes) {
  std::vector<std::string> lines;
  if (word == "#SBATCH") add_for_slurm(request, lines);
  if (word == "#PBS") add_for_pbs(request, nodes, lines);
  if (word == "#$") add_for_grid_engine(request, lines);
  if (word == "#OAR") add_for_oar(request, lines);
  for (std::string& line : lines) line = std::string(word) + " " + line;
  return lines;
}

}  // namespace scriptorium

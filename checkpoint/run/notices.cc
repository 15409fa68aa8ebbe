#include "checkpoint/run/notices.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "checkpoint/obstacles.h"
#include "checkpoint/processes.h"
#include "checkpoint/run/options.h"
#include "core/base/ascii.h"
#include "core/base/command.h"
#include "core/base/file.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::chrono::seconds kSchedulerPatience{5};
constexpr std::uint64_t kMostScript = 4U << 20;

bool asks_for_signal(std::string_view script) {
  while (!script.empty()) {
    const std::string_view line = take_until(script, '\n');
    if (line.starts_with("#SBATCH") && line.find("--signal") != std::string_view::npos) return true;
  }
  return false;
}

class SchedulerCommands {
 public:
  // What it prints; "": the scheduler cannot be asked. Its words are never more than advice.
  std::string run(const char* name, std::vector<std::string> arguments) {
    const char* path = std::getenv("PATH");
    const auto program = find_program("", name, path == nullptr ? "/usr/bin" : path);
    if (!program) return {};
    const auto answer = runner_.run(
        {.program = *program, .arguments = std::move(arguments), .environment = own_environment()},
        {}, deadline_);
    return answer && answer->status == 0 ? answer->output : std::string{};
  }

 private:
  CommandRunner runner_;
  SteadyTime deadline_ = std::chrono::steady_clock::now() + kSchedulerPatience;
};

// Slurm's copy of it is the last argument of the shell that runs it.
std::string script_of(pid_t first) {
  std::string arguments = read_proc("/proc/" + std::to_string(first) + "/cmdline");
  std::string script;
  for (std::string_view rest = arguments; !rest.empty();) {
    const std::string_view argument = take_until(rest, '\0');
    if (argument.ends_with("/slurm_script")) script = argument;
  }
  const auto text =
      script.empty() ? Result<std::string>(std::string{}) : read_file(script, kMostScript);
  return text ? *text : std::string{};
}

// Also where the processes of others are hidden.
bool may_run_here() {
  if (read_proc("/proc/1/comm").empty()) return true;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (is_all_digits(name) && read_proc("/proc/" + name + "/comm").starts_with(kServiceName))
      return true;
  }
  return error.value() != 0;
}

}  // namespace

std::optional<std::string> why_not_saved(const std::string& program) {
  static constexpr std::array<std::string_view, 9> kMpi{
      "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun", "aprun", "jsrun", "ibrun"};
  static constexpr std::array<std::string_view, 8> kContainers{
      "apptainer", "singularity", "docker", "podman", "ch-run", "enroot", "sarus", "shifter"};
  const std::string name = std::filesystem::path(program).filename();
  if (std::find(kMpi.begin(), kMpi.end(), name) != kMpi.end()) {
    return name +
           " starts processes that are connected by a network, or that are not its own: "
           "they cannot be saved. Run it without scriptorium-run";
  }
  if (std::find(kContainers.begin(), kContainers.end(), name) != kContainers.end()) {
    return name +
           " starts a container, whose namespaces and mounts cannot be saved with the rights "
           "of a user. Run it without scriptorium-run";
  }
  return std::nullopt;
}

std::string value_of(std::string_view text, std::string_view name, char end) {
  while (!text.empty()) {
    std::string_view entry = trim(take_until(text, end), " \n");
    if (!entry.starts_with(name)) continue;
    entry = trim(entry.substr(name.size()));
    if (entry.starts_with('=')) return std::string(trim(entry.substr(1)));
  }
  return {};
}

bool has_exit_code(std::string_view list, int code) {
  while (!list.empty()) {
    std::string_view range = trim(take_until(list, ','));
    const auto from = take_number<int>(range);
    if (!from) continue;
    const auto to = range.starts_with('-') ? parse_number<int>(range.substr(1)) : from;
    if (to && *from <= code && code <= *to) return true;
  }
  return false;
}

std::vector<std::string> slurm_notices(std::string_view config, std::string_view job,
                                       std::string_view script) {
  std::vector<std::string> said;
  if (!config.empty() && !has_exit_code(value_of(config, "RequeueExit", '\n'), kExitRunAgain)) {
    said.emplace_back(
        "Slurm will not run the job again when the command was saved: RequeueExit in "
        "slurm.conf has no 99");
  }
  if (value_of(job, "Requeue", ' ') == "0") {
    said.emplace_back(
        "Slurm will not run the job again when the command was saved: it was "
        "submitted without --requeue");
  }
  if (!script.empty() && value_of(job, "TimeLimit", ' ') != "UNLIMITED" &&
      !asks_for_signal(script)) {
    said.emplace_back(
        "the job script asks for no signal; unless sbatch was given "
        "--signal=B:USR2@300, nothing is saved before the time limit");
  }
  return said;
}

OarNotices oar_notices(std::string_view job, const std::string& directory) {
  OarNotices said;
  while (!job.empty()) {
    std::string_view line = trim(take_until(job, '\n'));
    if (trim(take_until(line, '=')) != "types") continue;
    bool is_idempotent = false;
    while (!line.empty())
      is_idempotent = trim(take_until(line, ',')) == "idempotent" || is_idempotent;
    if (!is_idempotent) {
      said.again =
          "OAR will not run the job again when the command was saved: it was submitted without -t "
          "idempotent";
    }
    break;
  }
  static constexpr std::array<std::string_view, 3> kEmptied{"/tmp/", "/var/tmp/", "/dev/shm/"};
  for (const std::string_view folder : kEmptied) {
    if (!directory.starts_with(folder)) continue;
    said.images = "the save directory is in " + std::string(trim_end(folder, "/")) +
                  ", where OAR removes your files when your last job on this node ends: nothing "
                  "would be left to resume";
  }
  return said;
}

std::vector<std::string> notices(const BatchJob& job, std::optional<pid_t> first,
                                 const std::string& requests, int directory) {
  std::vector<std::string> said;
  SchedulerCommands scheduler;
  bool loses_images = false;
  if (job.scheduler == Scheduler::kSlurm) {
    const bool asks = std::getenv("SBATCH_SIGNAL") != nullptr;
    said = slurm_notices(scheduler.run("scontrol", {"show", "config"}),
                         scheduler.run("scontrol", {"show", "-o", "job", job.id}),
                         first && !asks ? script_of(*first) : std::string{});
  } else {
    std::error_code error;
    const auto path =
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(directory), error);
    const OarNotices oar = oar_notices(scheduler.run("oarstat", {"-f", "-j", job.id}), path);
    for (const std::string& text : {oar.again, oar.images}) {
      if (!text.empty()) said.push_back(text);
    }
    loses_images = !oar.images.empty();
  }
  if (!requests.empty() && (::access(requests.c_str(), W_OK) != 0 || !may_run_here())) {
    said.push_back("scriptorium-checkpointd does not run on this node (" + printable(requests) +
                   "): the command cannot be saved here");
  }
  struct statfs system{};
  if (!loses_images && ::fstatfs(directory, &system) == 0 &&
      !is_shared_file_system(static_cast<std::uint64_t>(system.f_type)))
    said.emplace_back(
        "the save directory is on this node alone: the command can be resumed only "
        "on this node");
  return said;
}

}  // namespace scriptorium::checkpoint

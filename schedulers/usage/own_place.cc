#include "schedulers/usage/own_place.h"

#include <algorithm>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/time.h"
#include "schedulers/slurm_client/text.h"
#include "schedulers/usage/tree.h"

namespace scriptorium::usage {
namespace {

constexpr std::string_view kStepDaemon = "slurmstepd.scope";
constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

std::string text_of(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string{} : found->second;
}
std::optional<std::string> optional_of(const Variables& variables, std::string_view name) {
  return slurm_client::optional_text(text_of(variables, name));
}
std::optional<std::uint32_t> count_of(const Variables& variables, std::string_view name) {
  return slurm_client::read_count(text_of(variables, name));
}
// Of several processes of a launch, the first; also where the variable is absent.
bool is_first(const Variables& variables, std::string_view name) {
  return count_of(variables, name).value_or(0) == 0;
}

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::string_view part = take_until(path, '/');
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// A directory below which `parts[at + 1]`, or for v1 of Slurm `parts[at + 2]`, is a job.
struct Below {
  std::string scheduler;
  std::string node;
  std::size_t job = 0;
};
std::optional<Below> parent_at(const std::vector<std::string_view>& parts, std::size_t at) {
  std::string_view name = parts[at];
  if (name.ends_with(kStepDaemon)) {
    name.remove_suffix(kStepDaemon.size());
    if (name.ends_with('_')) name.remove_suffix(1);
    return Below{"slurm", std::string(name), at + 1};
  }
  const bool owned = at + 1 < parts.size() && parts[at + 1].starts_with("uid_");
  if (owned && name == "slurm") return Below{"slurm", {}, at + 2};
  if (owned && name.starts_with("slurm_"))
    return Below{"slurm", std::string(name.substr(6)), at + 2};
  if (name == "torque") return Below{"torque", {}, at + 1};
  if (name == "jobid") return Below{"pbs", {}, at + 1};
  return std::nullopt;
}

std::optional<OwnPlace> place_of_path(std::string_view path) {
  const auto parts = parts_of(path);
  for (std::size_t at = 0; at < parts.size(); ++at) {
    const auto below = parent_at(parts, at);
    if (!below || below->job >= parts.size()) continue;
    const std::string_view directory = parts[below->job];
    const auto name = parse_job_name(below->scheduler, directory);
    if (!name) continue;
    OwnPlace own{.directory = {below->scheduler, std::string(directory)}};
    own.place.job = name->id;
    own.place.node = below->node;
    // Slurm numbers the steps of srun; "batch" and "interactive" are its own.
    own.place.is_launched = below->job + 1 < parts.size() && is_step(parts[below->job + 1]) &&
                            is_all_digits(parts[below->job + 1].substr(5));
    return own;
  }
  return std::nullopt;
}

std::optional<OwnPlace> place_of_variables(const Variables& variables) {
  if (const std::string id = text_of(variables, "SLURM_JOB_ID"); is_all_digits(id) && !id.empty()) {
    OwnPlace own{.directory = {"slurm", "job_" + id}};
    own.place.job = id;
    return own;
  }
  const std::string id = text_of(variables, "PBS_JOBID");
  const bool torque = text_of(variables, "PBS_VERSION").starts_with("TORQUE");
  OwnPlace own{.directory = {torque ? "torque" : "pbs", id}};
  own.place.job = id;
  return parse_job_name(own.directory.scheduler, id) ? std::optional(own) : std::nullopt;
}

// "16(x2),8": CPUs of the nodes, with how many nodes have so many.
std::optional<std::uint32_t> sum_of_nodes(std::string_view list) {
  std::uint32_t sum = 0;
  while (!list.empty()) {
    std::string_view item = take_until(list, ',');
    const auto each = take_number<std::uint32_t>(item);
    std::uint32_t times = 1;
    if (item.starts_with("(x") && item.ends_with(")")) {
      times = parse_number<std::uint32_t>(item.substr(2, item.size() - 3)).value_or(0);
      item = {};
    }
    if (!each || times == 0 || !item.empty()) return std::nullopt;
    sum += *each * times;
  }
  return sum == 0 ? std::nullopt : std::optional(sum);
}

JobFacts facts_of_slurm(const Variables& variables) {
  JobFacts facts;
  // Within a step it is the step's name.
  if (!variables.contains("SLURM_STEP_ID"))
    facts.job.name = optional_of(variables, "SLURM_JOB_NAME");
  facts.job.account = optional_of(variables, "SLURM_JOB_ACCOUNT");
  facts.job.partition = optional_of(variables, "SLURM_JOB_PARTITION");
  facts.job.qos = optional_of(variables, "SLURM_JOB_QOS");
  facts.job.work_dir = optional_of(variables, "SLURM_SUBMIT_DIR");
  if (const auto array = optional_of(variables, "SLURM_ARRAY_JOB_ID"))
    facts.job.array =
        JobArray{.job_id = *array, .task_id = optional_of(variables, "SLURM_ARRAY_TASK_ID")};
  if (const auto het = optional_of(variables, "SLURM_HET_JOB_ID"))
    facts.job.het = HetJob{.job_id = *het};
  facts.restarts = count_of(variables, "SLURM_RESTART_COUNT");

  Request& request = facts.request;
  request.nodes = count_of(variables, "SLURM_JOB_NUM_NODES");
  request.cpus = sum_of_nodes(text_of(variables, "SLURM_JOB_CPUS_PER_NODE"));
  const auto of_node = count_of(variables, "SLURM_MEM_PER_NODE");
  const auto of_cpu = count_of(variables, "SLURM_MEM_PER_CPU");
  if (of_node && *of_node > 0 && request.nodes) {
    request.memory_bytes = kMib * *of_node * *request.nodes;
  } else if (of_cpu && *of_cpu > 0 && request.cpus) {
    request.memory_bytes = kMib * *of_cpu * *request.cpus;
  }
  if (request.nodes == 1U) request.gpus = count_of(variables, "SLURM_GPUS_ON_NODE");
  facts.started_at = slurm_client::read_epoch(text_of(variables, "SLURM_JOB_START_TIME"));
  const auto end = slurm_client::read_epoch(text_of(variables, "SLURM_JOB_END_TIME"));
  if (facts.started_at && end && facts.started_at < end) {
    request.time_limit_seconds =
        static_cast<double>(end->nanoseconds - facts.started_at->nanoseconds) / kSecond;
  }
  return facts;
}

}  // namespace

Variables read_variables(const char* const* environment) {
  Variables variables;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t at = entry.find('=');
    if (at == std::string_view::npos) continue;
    variables.emplace(entry.substr(0, at), entry.substr(at + 1));
  }
  return variables;
}

std::optional<OwnPlace> find_own_place(std::string_view groups, const Variables& variables) {
  std::optional<OwnPlace> own;
  while (!groups.empty() && !own) {
    std::string_view line = take_until(groups, '\n');
    static_cast<void>(take_until(line, ':'));
    static_cast<void>(take_until(line, ':'));
    own = place_of_path(line);
  }
  if (!own) own = place_of_variables(variables);
  if (!own) return std::nullopt;
  OwnJob::Place& place = own->place;
  if (own->directory.scheduler == "slurm") {
    place.measures = is_first(variables, "SLURM_LOCALID");
    place.merges = is_first(variables, "SLURM_PROCID");
    const std::string id = text_of(variables, "SLURM_JOB_ID");
    if (is_sluid(place.job) && is_all_digits(id) && !id.empty()) place.job = id;
  } else {
    // pbsdsh counts the nodes from 0, and the tasks of a job from the script's, which is 1.
    place.merges = is_first(variables, "PBS_NODENUM");
    place.is_launched = count_of(variables, "PBS_TASKNUM").value_or(1) > 1;
  }
  return own;
}

JobFacts facts_of(const Variables& variables, const std::string& scheduler) {
  if (scheduler == "slurm") return facts_of_slurm(variables);
  JobFacts facts;
  facts.job.name = optional_of(variables, "PBS_JOBNAME");
  facts.job.account = optional_of(variables, "PBS_ACCOUNT");
  facts.job.partition = optional_of(variables, "PBS_QUEUE");
  facts.job.work_dir = optional_of(variables, "PBS_O_WORKDIR");
  facts.request.nodes = count_of(variables, "PBS_NUM_NODES");
  return facts;
}

}  // namespace scriptorium::usage

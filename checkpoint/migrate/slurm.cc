#include "checkpoint/migrate/slurm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <ctime>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "checkpoint/processes.h"
#include "checkpoint/run/notices.h"
#include "core/base/accounts.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::chrono::seconds kSlurmPatience{30};

// Slurm's words for nothing.
std::string or_nothing(std::string_view text) {
  if (text == "(null)" || text == "N/A" || text == "n/a" || text == "None") return {};
  return std::string(text);
}

std::vector<std::string> split_fields(std::string_view line) {
  std::vector<std::string> fields;
  while (!line.empty()) fields.emplace_back(take_until(line, '|'));
  return fields;
}

// "gres:gpu:a100:1", "gres/gpu:1": without "gres" in front of each.
std::string without_gres(std::string_view list) {
  std::string result;
  while (!list.empty()) {
    std::string_view each = take_until(list, ',');
    for (const std::string_view prefix : {"gres:", "gres/"}) {
      if (each.starts_with(prefix)) each.remove_prefix(prefix.size());
    }
    result += (result.empty() ? "" : ",") + std::string(each);
  }
  return result;
}

// The value of "mem" in "cpu=2,mem=200M,node=1".
std::string tres_value(std::string_view tres, std::string_view name) {
  while (!tres.empty()) {
    std::string_view value = take_until(tres, ',');
    if (take_until(value, '=') == name) return std::string(value);
  }
  return {};
}

bool has_usr2(std::string_view mask) {
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(mask.data(), mask.data() + mask.size(), bits, 16);
  return error == std::errc{} && (bits >> (SIGUSR2 - 1) & 1U) != 0;
}

// One process of the job, in what kInspectScript printed.
struct InspectedProcess {
  Process process;
  std::string name;
  std::string arguments;
  pid_t tracer = 0;
  bool catches = false;
  bool blocks = false;
};

std::optional<InspectedProcess> parse_inspected(std::string_view text) {
  InspectedProcess result;
  std::string_view status = text;
  std::string_view stat;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (line.starts_with("stat ")) stat = line.substr(5);
    if (line.starts_with("arguments ")) result.arguments = line.substr(10);
    const std::string_view key = take_until(line, ':');
    const std::string_view value = trim(line, " \t");
    if (key == "Name") result.name = value;
    if (key == "TracerPid") result.tracer = parse_number<pid_t>(value).value_or(0);
    if (key == "SigCgt") result.catches = has_usr2(value);
    if (key == "SigBlk") result.blocks = has_usr2(value);
  }
  const auto process = parse_process(stat, status);
  if (!process) return std::nullopt;
  result.process = *process;
  return result;
}

// They join a job's control group while they resume its program, which becomes their child.
bool is_of_service(const InspectedProcess& process) {
  return process.name == "criu" || process.name == kServiceName;
}

std::string now_as_slurm(std::chrono::seconds later) {
  const std::time_t now =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + later);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &local);
  return text.data();
}

}  // namespace

bool SlurmJob::has_ended() const {
  static constexpr std::array<std::string_view, 10> kEnded{
      "COMPLETED",     "FAILED",    "CANCELLED", "TIMEOUT", "NODE_FAIL",
      "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",  "REVOKED", "PREEMPTED"};
  return std::ranges::find(kEnded, state) != kEnded.end();
}

const char* const kJobFields =
    "JobID:|,JobArrayID:|,UserID:|,State:|,NodeList:|,BatchFlag:|,HetJobID:|,Requeue:|,"
    "RestartCnt:|,NumNodes:|,ReqNodes:|,Partition:|,PriorityLong:|,TimeUsed:|,Account:|,QOS:|,"
    "TimeLimit:|,NumTasks:|,cpus-per-task:|,tres-alloc:|,tres-per-node:|,tres-per-job:|,"
    "tres-per-task:|,Feature:|,OverSubscribe:|,Reservation:|";

std::vector<SlurmJob> parse_jobs(std::string_view text) {
  constexpr std::size_t kFields = 26;
  std::vector<SlurmJob> jobs;
  while (!text.empty()) {
    const auto fields = split_fields(take_until(text, '\n'));
    if (fields.size() != kFields) continue;
    SlurmJob job;
    const auto uid = parse_number<uid_t>(fields[2]);
    const auto restarts = parse_number<int>(fields[8]);
    if (!is_all_digits(fields[0]) || !uid || !restarts) continue;
    job.id = fields[0];
    job.display_id = fields[1];
    job.uid = *uid;
    job.state = fields[3];
    job.nodes = or_nothing(fields[4]);
    job.is_batch = fields[5] == "1";
    job.is_het = !or_nothing(fields[6]).empty() && fields[6] != "0";
    job.may_requeue = fields[7] == "1";
    job.restarts = *restarts;
    job.node_count = parse_number<int>(fields[9]).value_or(0);
    job.required_nodes = or_nothing(fields[10]);
    job.partition = fields[11];
    job.priority = fields[12];
    job.run_seconds = parse_slurm_time(fields[13]);
    const auto ask = [&](const char* option, const std::string& value) {
      if (!value.empty()) job.request.push_back(option + value);
    };
    ask("--account=", or_nothing(fields[14]));
    ask("--qos=", or_nothing(fields[15]));
    ask("--time=", or_nothing(fields[16]));
    ask("--ntasks=", or_nothing(fields[17]));
    ask("--cpus-per-task=", or_nothing(fields[18]));
    ask("--mem=", tres_value(fields[19], "mem"));
    ask("--gres=", without_gres(or_nothing(fields[20])));
    ask("--gpus=", without_gres(or_nothing(fields[21])));
    ask("--gpus-per-task=", without_gres(or_nothing(fields[22])));
    ask("--constraint=", or_nothing(fields[23]));
    if (fields[24] == "NO") job.request.emplace_back("--exclusive");
    ask("--reservation=", or_nothing(fields[25]));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

std::optional<SlurmNode> parse_node(std::string_view text) {
  std::string_view line = take_until(text, '\n');
  const std::string state = to_lower(take_until(line, '|'));
  const std::string reason = or_nothing(trim_end(line, "|"));
  if (state.empty()) return std::nullopt;
  return SlurmNode{state, reason == "none" ? std::string{} : reason};
}

std::string parse_excluded_nodes(std::string_view text) {
  constexpr std::string_view kKey = " ExcNodeList=";
  const auto at = text.find(kKey);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + kKey.size());
  return or_nothing(text.substr(0, text.find_first_of(" \n")));
}

std::int64_t parse_slurm_time(std::string_view text) {
  std::int64_t days = 0;
  if (text.find('-') != std::string_view::npos)
    days = parse_number<std::int64_t>(take_until(text, '-')).value_or(0);
  std::int64_t seconds = 0;
  while (!text.empty())
    seconds = seconds * 60 + parse_number<std::int64_t>(take_until(text, ':')).value_or(0);
  return days * 86400 + seconds;
}

Result<Placement> parse_placement(std::string_view error_output, std::string_view now) {
  std::string last;
  while (!error_output.empty()) {
    const std::string_view line = trim(take_until(error_output, '\n'));
    // "sbatch: Job 5 to start at 2026-11-28T23:36:07 using 1 processors on nodes n2 in partition p"
    constexpr std::string_view kStart = " to start at ";
    constexpr std::string_view kNodes = " on nodes ";
    const auto start = line.find(kStart);
    const auto nodes = line.find(kNodes);
    if (start != std::string_view::npos && nodes != std::string_view::npos) {
      std::string_view time = line.substr(start + kStart.size());
      std::string_view names = line.substr(nodes + kNodes.size());
      Placement place{std::string(take_until(names, ' ')), std::string(take_until(time, ' '))};
      if (place.start <= now) place.start.clear();
      return place;
    }
    if (!line.empty()) last = line;
  }
  for (const std::string_view prefix : {"sbatch: ", "error: ", "allocation failure: "}) {
    if (last.starts_with(prefix)) last.erase(0, prefix.size());
  }
  return Error{ErrorKind::kPermanent, printable(last)};
}

// Without any program of the node but sh and cat. The names of processes and their arguments are
// the job's own, so no line of them may begin as one of ours: the kernel escapes line ends in
// `status`, and tr removes them from the arguments.
const char* const kInspectScript = R"(PATH=/usr/bin:/bin
for folder in /proc/[0-9]*; do
  while IFS=: read -r number names group; do
    case $group in
      */job_$1/step_batch|*/job_$1/step_batch/*)
        echo "process"
        cat "$folder/status"
        printf 'stat '; tr '\n' ' ' <"$folder/stat"; echo
        printf 'arguments '; tr '\000\n' '  ' <"$folder/cmdline"; echo
        break ;;
    esac
  done <"$folder/cgroup"
done 2>/dev/null
exit 0
)";

std::optional<BatchProcess> parse_batch_process(std::string_view text, uid_t owner) {
  std::vector<InspectedProcess> members;
  bool is_restoring = false;
  constexpr std::string_view kBegin = "process\n";
  while (!text.empty()) {
    if (!text.starts_with(kBegin)) {
      take_until(text, '\n');
      continue;
    }
    text.remove_prefix(kBegin.size());
    const auto end = std::min(text.find("\nprocess\n"), text.size());
    auto member = parse_inspected(text.substr(0, end));
    if (member && !member->process.is_zombie && belongs_to(member->process, owner)) {
      is_restoring = is_restoring || member->name == "criu";
      if (!is_of_service(*member)) members.push_back(*std::move(member));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::set<pid_t> pids;
  for (const InspectedProcess& member : members) pids.insert(member.process.pid);
  std::vector<const InspectedProcess*> roots;
  for (const InspectedProcess& member : members) {
    if (!pids.contains(member.process.parent)) roots.push_back(&member);
  }
  // As first_process().
  const auto first = std::ranges::min_element(
      roots, {}, [](const InspectedProcess* member) { return member->process.start; });
  if (first == roots.end()) return std::nullopt;
  const InspectedProcess& batch = **first;
  BatchProcess result{.catches_signal = batch.catches,
                      .blocks_signal = batch.blocks,
                      .name = batch.name,
                      .tracer = {},
                      .saves_itself = false,
                      .has_resumed_program = false};
  const InspectedProcess* runner = batch.name == kRunName ? &batch : nullptr;
  for (const InspectedProcess& member : members) {
    if (batch.tracer != 0 && member.process.pid == batch.tracer) {
      result.tracer = member.name;
      runner = &member;
    }
  }
  if (runner != nullptr) {
    const std::string& words = runner->arguments;
    result.saves_itself = words.find(" --engine=app ") != std::string::npos ||
                          words.find(" --engine app ") != std::string::npos;
  }
  // What a script left behind has process 1 for its parent; what was resumed, the service.
  result.has_resumed_program =
      !is_restoring && std::ranges::any_of(roots, [&](const InspectedProcess* root) {
        return root != *first && root->process.parent != 1;
      });
  return result;
}

SlurmCommands::SlurmCommands(std::string path, const std::vector<std::string>& environment,
                             uid_t uid)
    : path_(std::move(path)), uid_(uid) {
  static constexpr std::array<std::string_view, 7> kKept{
      "PATH=", "SLURM_CONF=", "SLURM_JWT=", "HOME=", "USER=", "LOGNAME=", "TZ="};
  for (const std::string& entry : environment) {
    if (std::ranges::any_of(kKept, [&](std::string_view name) { return entry.starts_with(name); }))
      environment_.push_back(entry);
  }
  environment_.emplace_back("LC_ALL=C");
}

Result<CommandRunner::Answer> SlurmCommands::run(std::vector<std::string> words) {
  const std::string name = words.front();
  const auto program = find_program("", name, path_);
  if (!program) return Error{ErrorKind::kTransient, name + " is not installed, or not in the PATH"};
  words.erase(words.begin());
  auto answer = runner_.run({.program = *program,
                             .arguments = std::move(words),
                             .environment = environment_,
                             .input = {}},
                            {}, std::chrono::steady_clock::now() + kSlurmPatience);
  return answer;
}

// A step in a job has the rights of its owner and no others.
Result<CommandRunner::Answer> SlurmCommands::run_as(uid_t owner, std::vector<std::string> words) {
  if (owner == uid_) return run(std::move(words));
  if (uid_ != 0) return Error{ErrorKind::kPermanent, "only root or the job's owner can do this"};
  const auto user = find_user(owner);
  if (!user) return user.error();
  if (!*user) {
    return Error{ErrorKind::kPermanent,
                 "the owner (user id " + std::to_string(owner) + ") is not a user of this machine"};
  }
  std::vector<std::string> all{"setpriv",
                               "--reuid=" + std::to_string(owner),
                               "--regid=" + std::to_string((*user)->gid),
                               "--init-groups",
                               "--inh-caps=-all",
                               "--no-new-privs",
                               "--"};
  std::ranges::move(words, std::back_inserter(all));
  return run(std::move(all));
}

Result<std::string> SlurmCommands::output_of(std::vector<std::string> words) {
  const std::string name = words.front();
  auto answer = run(std::move(words));
  if (!answer) return answer.error();
  if (answer->status != 0) return exit_error(name, *answer);
  return std::move(answer->output);
}

Result<void> SlurmCommands::done(std::vector<std::string> words) {
  auto answer = run(std::move(words));
  if (!answer) return answer.error();
  if (answer->status == 0) return {};
  std::string_view said = answer->error;
  std::string text(trim(take_until(said, '\n')));
  return Error{ErrorKind::kPermanent, "Slurm refuses: " + printable(text)};
}

Result<std::string> SlurmCommands::requeue_exit() {
  auto text = config();
  if (!text) return text.error();
  return or_nothing(value_of(*text, "RequeueExit", '\n'));
}

Result<std::vector<SlurmJob>> SlurmCommands::jobs(const std::vector<std::string>& ids) {
  std::string list;
  for (const std::string& id : ids) list += (list.empty() ? "" : ",") + id;
  auto answer = run({"squeue", "-h", "-a", "-t", "all", "-j", list, "-O", kJobFields});
  if (!answer) return answer.error();
  // Of one job only.
  if (answer->error.find("Invalid job id specified") != std::string::npos)
    return std::vector<SlurmJob>{};
  if (answer->status != 0) return exit_error("squeue", *answer);
  return parse_jobs(answer->output);
}

Result<std::vector<SlurmJob>> SlurmCommands::jobs_on(const std::string& node) {
  auto text =
      output_of({"squeue", "-h", "-a", "-t", "running,suspended", "-w", node, "-O", kJobFields});
  if (!text) return text.error();
  return parse_jobs(*text);
}

Result<SlurmNode> SlurmCommands::node(const std::string& name) {
  auto text = output_of({"sinfo", "-h", "-N", "-n", name, "-O", "StateComplete:|,Reason:|"});
  if (!text) return text.error();
  const auto node = parse_node(*text);
  if (!node)
    return Error{ErrorKind::kPermanent, "Slurm has no node " + name + "; sinfo -N lists them"};
  return *node;
}

Result<std::string> SlurmCommands::excluded_nodes(const std::string& job) {
  auto text = output_of({"scontrol", "show", "-o", "job", job});
  if (!text) return text.error();
  return parse_excluded_nodes(*text);
}

Result<std::optional<BatchProcess>> SlurmCommands::inspect(const SlurmJob& job) {
  auto answer = run_as(
      job.uid, {"srun", "--jobid=" + job.id, "--overlap", "--immediate=10", "--nodes=1",
                "--ntasks=1", "--mem=0", "--gres=none", "--mpi=none", "--input=none", "--quiet",
                "--chdir=/", "--export=NONE", "/bin/sh", "-c", kInspectScript, "sh", job.id});
  if (!answer) return answer.error();
  if (answer->status != 0) return exit_error("srun", *answer);
  return parse_batch_process(answer->output, job.uid);
}

Result<Placement> SlurmCommands::place(const SlurmJob& job, const SlurmChanges& changes) {
  // Not with the job's script: its options may have been overridden when it was submitted.
  std::vector<std::string> words{"sbatch", "--test-only", "--nodes=1", "--chdir=/", "--wrap=true"};
  words.push_back("--partition=" + (changes.partition.empty() ? job.partition : changes.partition));
  if (!changes.excluded_nodes.empty()) words.push_back("--exclude=" + changes.excluded_nodes);
  if (!changes.required_nodes.empty()) words.push_back("--nodelist=" + changes.required_nodes);
  for (const std::string& word : job.request) words.push_back(word);
  auto answer = run_as(job.uid, std::move(words));
  if (!answer) return answer.error();
  constexpr std::chrono::seconds kAtOnce{60};
  return parse_placement(answer->error, now_as_slurm(kAtOnce));
}

Result<void> SlurmCommands::signal(const std::string& job) {
  return done({"scancel", "--batch", "--signal=USR2", job});
}

Result<void> SlurmCommands::requeue(const std::string& job) {
  return done({"scontrol", "requeue", job});
}

// So that its owner may release it.
Result<void> SlurmCommands::hold(const std::string& job) {
  return done({"scontrol", "uhold", job});
}

Result<void> SlurmCommands::change(const std::string& job, const SlurmChanges& changes) {
  std::vector<std::string> words{"scontrol", "update", "JobId=" + job};
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(name + (value == "-" ? std::string{} : value));
  };
  set("ExcNodeList=", changes.excluded_nodes);
  set("ReqNodeList=", changes.required_nodes);
  set("Partition=", changes.partition);
  set("Priority=", changes.priority);
  set("StartTime=", changes.start);
  if (words.size() == 3) return {};
  return done(std::move(words));
}

Result<void> SlurmCommands::drain(const std::string& node, const std::string& reason) {
  return done({"scontrol", "update", "NodeName=" + node, "State=DRAIN", "Reason=" + reason});
}

Result<void> SlurmCommands::resume(const std::string& node) {
  return done({"scontrol", "update", "NodeName=" + node, "State=RESUME"});
}

}  // namespace scriptorium::checkpoint

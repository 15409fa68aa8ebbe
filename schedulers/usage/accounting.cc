#include "schedulers/usage/accounting.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/command.h"
#include "core/base/number.h"
#include "core/base/pause.h"
#include "core/base/time.h"
#include "schedulers/slurm_client/command.h"
#include "schedulers/slurm_client/text.h"
#include "schedulers/usage/job_events.h"
#include "schedulers/usage/queued_jobs.h"
#include "schedulers/usage/steps.h"

namespace scriptorium::usage {
namespace {

using namespace std::literals;
using namespace slurm_client;

constexpr std::int64_t kWindow = std::int64_t{6} * 3600 * kSecond;
constexpr auto kPatience = 120s;
constexpr std::size_t kIdDigits = 16;  // of an event's id, in the cursor
constexpr int kVersion = 1;

enum Field : std::size_t {
  kJobIdRaw,
  kJobId,
  kUid,
  kGid,
  kUser,
  kGroup,
  kAccount,
  kPartition,
  kQos,
  kSubmit,
  kStart,
  kEnd,
  kElapsed,
  kSuspended,
  kTimeLimit,
  kState,
  kExitCode,
  kNodes,
  kCpus,
  kTres,
  kTotalCpu,
  kUserCpu,
  kSystemCpu,
  kMaxRss,
  kTresTotal,
  kTasks,
  kNodeList,
  kWorkDir,
  kJobName,
  kFields
};
constexpr const char* kNames =
    "JobIDRaw,JobID,UID,GID,User,Group,Account,Partition,QOS,Submit,Start,End,ElapsedRaw,Suspended,"
    "TimelimitRaw,State,ExitCode,"
    "NNodes,"
    "AllocCPUS,AllocTRES,TotalCPU,UserCPU,SystemCPU,MaxRSS,TRESUsageInTot,NTasks,NodeList,"
    "WorkDir,JobName";
constexpr const char* kStates = "CA,CD,DL,F,NF,OOM,PR,RQ,RV,TO,BF";

// "2026-11-21T20:17:53", UTC because the child runs with TZ=UTC; nothing for "Unknown".
std::optional<Timestamp> read_time(std::string_view text) {
  return parse_rfc3339(std::string(text) + "Z");
}
std::string sacct_time(Timestamp time) {
  std::string text = format_rfc3339(time, TimePrecision::kSeconds);
  text.pop_back();  // the Z
  return text;
}

using Row = std::array<std::string_view, kFields>;

JobFacts read_facts(const Row& row) {
  JobFacts facts;
  facts.job = {.id = std::string(row[kJobIdRaw]),
               .name = optional_text(row[kJobName]),
               .account = optional_text(row[kAccount]),
               .partition = optional_text(row[kPartition]),
               .qos = optional_text(row[kQos]),
               .submitted_at = read_time(row[kSubmit]),
               .work_dir = optional_text(row[kWorkDir])};
  // "3_1" of an array, "7+1" of a heterogeneous job
  if (const auto mark = row[kJobId].find_first_of("_+"); mark != std::string_view::npos) {
    const std::string whole(row[kJobId].substr(0, mark));
    if (row[kJobId][mark] == '_') {
      facts.job.array =
          JobArray{.job_id = whole, .task_id = std::string(row[kJobId].substr(mark + 1))};
    } else {
      facts.job.het = HetJob{.job_id = whole};
    }
  }
  facts.user = {.name = optional_text(row[kUser]), .group_name = optional_text(row[kGroup])};
  if (parse_number<std::uint64_t>(row[kUid])) facts.user.id = std::string(row[kUid]);
  if (parse_number<std::uint64_t>(row[kGid])) facts.user.group_id = std::string(row[kGid]);
  facts.user.verified = facts.user.id.has_value();
  // "CANCELLED by 1000"
  facts.state = std::string(row[kState].substr(0, row[kState].find(' ')));
  facts.exit_code = optional_text(row[kExitCode]);
  facts.suspended_seconds = read_duration(row[kSuspended]);
  facts.request = read_request(row[kTres], row[kNodes], row[kCpus], "");
  if (const auto minutes = read_count(row[kTimeLimit]); minutes && *minutes != 0)
    facts.request.time_limit_seconds = static_cast<double>(*minutes) * 60;
  return facts;
}

// A job's own row, without what its steps used.
std::optional<AccountedJob> read_job(const Row& row) {
  const auto started = read_time(row[kStart]);
  const auto ended = read_time(row[kEnd]);
  auto elapsed = parse_number<std::uint64_t>(row[kElapsed]);
  // Cancelled while it waited: it had no CPU, so there is nothing to report.
  if (!started || !ended || !elapsed || row[kTres].empty()) return std::nullopt;
  const std::int64_t between = std::max<std::int64_t>(0, ended->nanoseconds - started->nanoseconds);
  elapsed = std::min(*elapsed, static_cast<std::uint64_t>(between / kSecond));
  AccountedJob job{.view = {.facts = read_facts(row), .accounting = true},
                   .ended_at = *ended,
                   .node_list = std::string(row[kNodeList])};
  JobFacts& facts = job.view.facts;
  facts.started_at = started;
  facts.ended_at = ended;
  facts.elapsed_seconds = static_cast<double>(*elapsed);
  job.view.nodes_expected = facts.request.nodes;
  Totals& totals = job.view.totals;
  totals.elapsed_seconds = *facts.elapsed_seconds;
  totals.cpus = facts.request.cpus;
  totals.memory_bytes = facts.request.memory_bytes;
  totals.user_seconds = read_duration(row[kUserCpu]);
  totals.system_seconds = read_duration(row[kSystemCpu]);
  totals.cpu_seconds = read_duration(row[kTotalCpu]);
  // ConsumedEnergyRaw. Without a plugin that gathers it, it is 0 or absent.
  const auto joules = parse_number<std::uint64_t>(tres(row[kTres], "energy").value_or(""));
  if (joules && *joules > 0) totals.nodes_energy_joules = static_cast<double>(*joules);
  return job;
}

// A step whose end is not known ended with its job.
AccountedStep read_step(const Row& row, const JobFacts& job) {
  // 0 bytes: it ended before the first reading. No process has as little as a few pages.
  static constexpr std::uint64_t kLeast = 64U << 10U;
  const auto bytes = [](std::string_view text) {
    const auto size = read_size(text);
    return size < kLeast ? std::nullopt : size;
  };
  const auto total = [&](std::string_view name) {
    return tres(row[kTresTotal], name).value_or("");
  };
  const std::string_view name = row[kJobIdRaw].substr(row[kJobIdRaw].find('.') + 1);
  AccountedStep step{.is_extern = name == "extern",
                     .is_batch = name == "batch",
                     .started_at = read_time(row[kStart]).value_or(*job.started_at),
                     .ended_at = read_time(row[kEnd]).value_or(*job.ended_at),
                     .node_list = row[kNodeList],
                     .nodes = std::max(1U, read_count(row[kNodes]).value_or(1)),
                     .tasks = read_count(row[kTasks]),
                     .cpus = read_count(tres(row[kTres], "cpu").value_or("")),
                     .cpu_seconds = read_duration(row[kTotalCpu]),
                     .sampled_cpu_seconds = read_duration(total("cpu")),
                     .largest_task_bytes = bytes(row[kMaxRss]),
                     .all_tasks_bytes = bytes(total("mem")),
                     .gpu_bytes = read_size(total("gres/gpumem"))};
  if (step.tasks.value_or(0) == 0) {
    step.tasks.reset();
    if (step.is_batch || step.is_extern || name == "interactive") step.tasks = step.nodes;
  }
  if (const auto percent = read_count(total("gres/gpuutil"))) step.gpu_percent = *percent;
  return step;
}

}  // namespace

std::vector<std::string> sacct_arguments(std::string_view guard, Timestamp from, Timestamp to) {
  // --local: in a federation it may answer for all of its clusters.
  return {"--allusers",
          "--duplicates",
          "--local",
          "--noheader",
          "--parsable",
          "--noconvert",
          "--delimiter=" + std::string(guard),
          "--state",
          kStates,
          "--starttime",
          sacct_time(from),
          "--endtime",
          sacct_time(to),
          "--format",
          kNames};
}

Result<std::vector<AccountedJob>> parse_sacct(std::string_view answer, std::string_view guard) {
  const auto rows = split_rows<kFields>(answer, guard, "sacct");
  if (!rows) return rows.error();
  std::vector<AccountedJob> jobs;
  std::vector<AccountedStep> steps;  // of the last of `jobs`
  bool in_job = false;               // the steps that follow belong to it
  std::string id;
  const auto finish = [&] {
    if (in_job) add_up_steps(steps, jobs.back().view);
    steps.clear();
  };
  for (const Row& row : *rows) {
    const std::string_view raw = row[kJobIdRaw];
    const std::string_view number = raw.substr(0, raw.find('.'));
    if (!parse_number<std::uint64_t>(number)) return odd_answer("sacct");
    if (number.size() == raw.size()) {
      finish();
      auto job = read_job(row);
      in_job = job.has_value();
      id = number;
      if (job) jobs.push_back(*std::move(job));
    } else if (in_job && id == number) {
      steps.push_back(read_step(row, jobs.back().view.facts));
    }
  }
  finish();
  return jobs;
}

void keep_own_energy(std::vector<AccountedJob>& jobs, const NodeSizes& sizes) {
  // Of one node, and then something: readings that failed were seen as numbers of 32 or 64 bits.
  static constexpr double kMostWatts = 50'000;
  for (AccountedJob& job : jobs) {
    Totals& totals = job.view.totals;
    if (!totals.nodes_energy_joules) continue;
    const double most =
        kMostWatts * job.view.nodes_expected.value_or(1) * (totals.elapsed_seconds + 1);
    // While it was suspended, its nodes worked for others.
    const bool is_own = job.view.facts.suspended_seconds.value_or(0) == 0 &&
                        had_alone(sizes, job.node_list, totals.cpus.value_or(0));
    if (is_own && *totals.nodes_energy_joules > most) {
      job.view.not_credible.push_back(
          {"energy.nodes_joules", *totals.nodes_energy_joules,
           "Accounting has more energy than any node can draw in that time."});
    }
    if (!is_own || *totals.nodes_energy_joules > most) totals.nodes_energy_joules.reset();
  }
}

std::string AccountingCursor::text() const {
  return nlohmann::json{{"version", kVersion},
                        {"until", format_rfc3339(until, TimePrecision::kSeconds)},
                        {"seen", seen}}
      .dump();
}

std::optional<AccountingCursor> parse_cursor(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("version", 0) != kVersion || !json.contains("until") ||
      !json["until"].is_string() || !json.contains("seen") || !json["seen"].is_array()) {
    return std::nullopt;
  }
  const auto until = parse_rfc3339(json["until"].get<std::string>());
  if (!until) return std::nullopt;
  AccountingCursor cursor{.until = *until};
  for (const auto& id : json["seen"]) {
    if (id.is_string()) cursor.seen.insert(id.get<std::string>());
  }
  return cursor;
}

namespace {

class Import {
 public:
  Import(const JobConfig& config, const PluginContext& context, EventWriter& writer)
      : config_(config), context_(context), writer_(writer) {
    const auto position = writer_.position();
    auto cursor = position ? parse_cursor(*position) : std::nullopt;
    if (position && !cursor) {
      context_.log.warning(
          "USAGE_POSITION_UNREAD",
          "the accounting's position is not understood; jobs are imported again as "
          "at the first start",
          {});
    }
    if (!cursor)
      cursor = AccountingCursor{
          .until = {now().nanoseconds - config_.accounting_first_hours * 3600 * kSecond}};
    cursor_ = *std::move(cursor);
  }

  // One window; true if there is more before the present.
  Result<bool> step(const std::stop_token& stop) {
    const Timestamp present = now();
    const Timestamp to{std::min(present.nanoseconds, cursor_.until.nanoseconds + kWindow)};
    // A clock that was set back leaves the cursor in the future: wait until it is reached again.
    if (to.nanoseconds < cursor_.until.nanoseconds) return false;
    const Timestamp from{cursor_.until.nanoseconds - overlap()};
    auto jobs = ask(from, to, stop);
    if (!jobs) return jobs.error();

    std::vector<Event> events;
    AccountingCursor next{.until = to};
    std::map<std::string, Timestamp> ends;
    for (AccountedJob& job : *jobs) {
      if (job.ended_at.nanoseconds > to.nanoseconds) continue;
      if (config_.accounting_jobs == AccountingJobs::kMultiNode &&
          job.view.nodes_expected.value_or(1) < 2)
        continue;
      Event event = job_event(context_.cluster, "slurm", job.view, config_.findings);
      const std::string id = event.id.substr(0, kIdDigits);
      if (job.ended_at.nanoseconds >= to.nanoseconds - overlap()) next.seen.insert(id);
      if (!cursor_.seen.contains(id)) events.push_back(std::move(event));
    }
    // Not requested again, because the window did not move past their end.
    const bool moved = to.nanoseconds - overlap() > from.nanoseconds;
    if (!moved) next.seen.insert(cursor_.seen.begin(), cursor_.seen.end());
    if (!events.empty() || to.nanoseconds != cursor_.until.nanoseconds) {
      if (auto written = writer_.write(std::move(events), next.text()); !written)
        return written.error();
    }
    cursor_ = std::move(next);
    return to < present;
  }

 private:
  Timestamp now() const {
    const std::int64_t time = context_.clock.now().nanoseconds;
    return {time - time % kSecond};
  }
  std::int64_t overlap() const { return config_.accounting_overlap_seconds * kSecond; }

  Result<std::vector<AccountedJob>> ask(Timestamp from, Timestamp to, const std::stop_token& stop) {
    const auto sacct = find_command(config_.sacct, "sacct");
    if (!sacct) return sacct.error();
    const auto guard = new_guard();
    if (!guard) return guard.error();
    const auto answer = runner_.run({*sacct, sacct_arguments(*guard, from, to),
                                     environment(config_.slurm_conf, {"SLURM_BITSTR_LEN=0"})},
                                    stop, std::chrono::steady_clock::now() + kPatience);
    if (!answer) return answer.error();
    if (answer->status != 0) return exit_error("sacct", *answer);
    auto jobs = parse_sacct(answer->output, *guard);
    if (jobs && std::ranges::any_of(*jobs, [](const AccountedJob& job) {
          return job.view.totals.nodes_energy_joules.has_value();
        }))
      keep_own_energy(*jobs, node_sizes(*sacct, *guard, stop));
    return jobs;
  }

  // By the sinfo beside sacct. Empty, so that no energy is known, if it does not answer: the jobs
  // themselves must not wait for that.
  NodeSizes node_sizes(const std::string& sacct, const std::string& guard,
                       const std::stop_token& stop) {
    const std::string sinfo = sacct.substr(0, sacct.rfind('/') + 1) + "sinfo";
    const auto answer =
        runner_.run({sinfo, sinfo_arguments(guard), environment(config_.slurm_conf)}, stop,
                    std::chrono::steady_clock::now() + kPatience);
    if (!answer || answer->status != 0) return {};
    auto sizes = parse_sinfo(answer->output, guard);
    return sizes ? *std::move(sizes) : NodeSizes{};
  }

  const JobConfig& config_;
  const PluginContext& context_;
  EventWriter& writer_;
  CommandRunner runner_{kMaxAnswer};
  AccountingCursor cursor_;
};

}  // namespace

Result<void> run_accounting(const JobConfig& config, const PluginContext& context,
                            EventWriter& writer, const std::stop_token& stop, bool once) {
  Import import(config, context, writer);
  while (!stop.stop_requested()) {
    const auto more = import.step(stop);
    if (!more) return stop.stop_requested() ? Result<void>{} : more.error();
    if (*more) continue;
    if (once) return {};
    pause_until(stop,
                context.clock.steady() + std::chrono::seconds(config.accounting_interval_seconds));
  }
  return {};
}

}  // namespace scriptorium::usage

#include "core/api/kit/search/job_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium {
namespace {

using Json = nlohmann::json;

constexpr const char* kUsage = "usage";  // the event's member, not the plugin of that name

// A member that is missing or of another type is unknown.
const Json& member(const Json& object, const char* name) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

std::optional<std::string> text_at(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

std::optional<Timestamp> time_at(const Json& object, const char* name) {
  const auto text = text_at(object, name);
  return text ? parse_rfc3339(*text) : std::nullopt;
}

std::optional<std::uint64_t> count_at(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  constexpr double kMost = 1e18;
  return number >= 0 && number <= kMost ? std::optional(static_cast<std::uint64_t>(number))
                                        : std::nullopt;
}

std::optional<double> number_at(const Json& object, const char* name) {
  const Json& value = member(object, name);
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  return std::isfinite(number) && number >= 0 ? std::optional(number) : std::nullopt;
}

// What the first of two places has.
template <typename T>
std::optional<T> either(std::optional<T> first, std::optional<T> second) {
  return first ? std::move(first) : std::move(second);
}

template <typename T>
void take(std::optional<T>& into, std::optional<T> value) {
  if (value) into = std::move(value);
}

void take_exit(JobRow& row, const std::optional<std::string>& text) {
  if (!text) return;
  std::string_view rest = *text;
  const auto code = parse_number<std::int64_t>(take_until(rest, ':'));
  if (!code) return;
  row.exit_code = code;
  row.exit_signal = parse_number<std::int64_t>(rest);
}

// ---- submission

void add_once(std::vector<std::string>& list, std::string_view item) {
  if (!item.empty() && std::find(list.begin(), list.end(), item) == list.end())
    list.emplace_back(item);
}

void take_owner(JobRow& row, const Event& event) {
  row.name = event.job.name;
  if (event.job.array) {
    row.array_job_id = event.job.array->job_id;
    row.array_task_spec = event.job.array->task_spec;
  }
  if (event.job.het) row.het_job_id = event.job.het->job_id;
  row.user = event.user.name;
  row.uid = event.user.id;
  row.group = event.user.group_name;
  row.verified = event.user.verified;
  row.account = event.job.account;
  row.partition = event.job.partition;
  row.qos = event.job.qos;
  row.work_dir = event.job.work_dir;
}

void take_key(JobRow& row, const Event& event) {
  row.cluster = event.cluster;
  row.scheduler = event.scheduler;
  row.id = event.job.id;
  row.time = event.time;
}

// ---- later events

// What orders the lives of a job.
std::optional<Timestamp> end_of(const std::optional<Timestamp>& started,
                                const std::optional<Timestamp>& ended) {
  return ended ? ended : started;
}

// Schedulers may say a second more or less while a job runs than in their accounting afterwards.
bool is_same_start(const JobRow& row, const std::optional<Timestamp>& started,
                   const std::optional<Timestamp>& ended) {
  constexpr std::int64_t kSlack = 5 * kSecond;
  if (!started || !row.started_at) return false;
  if (row.started_at == started) return true;
  const std::int64_t apart = row.started_at->nanoseconds - started->nanoseconds;
  return (!ended || !row.ended_at) && apart <= kSlack && -apart <= kSlack;
}

void forget_life(JobRow& row) {
  row.state.reset();
  row.exit_code.reset();
  row.exit_signal.reset();
  row.started_at.reset();
  row.ended_at.reset();
  row.elapsed_seconds.reset();
  row.cpu_seconds.reset();
  row.cpus.reset();
  row.cpu_ratio.reset();
  row.memory_peak_bytes.reset();
  row.memory_limit_bytes.reset();
  row.gpus.reset();
  row.gpu_ratio.reset();
  row.time_limit_seconds.reset();
  row.nodes.clear();
  row.findings.clear();
}

template <typename Item>
void take_list(std::vector<std::string>& into, const Json& list, Item item) {
  if (!list.is_array()) return;
  into.clear();
  for (const Json& one : list) {
    if (const auto text = item(one)) add_once(into, *text);
  }
}

void take_usage(JobRow& row, const Json& usage) {
  const Json& request = member(usage, "request");
  const Json& cpu = member(usage, "cpu");
  const Json& memory = member(usage, "memory");
  const Json& gpu = member(usage, "gpu");
  const bool partial = text_at(member(usage, "quality"), "status") == "partial";
  // What some of its nodes used is not what the job used. Then there is no ratio either.
  const auto is_whole = [&](const Json& figures) {
    return !partial || number_at(figures, "efficiency_ratio");
  };
  take(row.elapsed_seconds, number_at(usage, "elapsed_seconds"));
  if (is_whole(cpu)) take(row.cpu_seconds, number_at(cpu, "time_seconds"));
  take(row.cpus, either(count_at(cpu, "allocated"), count_at(request, "cpus")));
  take(row.cpu_ratio, number_at(cpu, "efficiency_ratio"));
  if (is_whole(memory)) take(row.memory_peak_bytes, count_at(memory, "peak_bytes"));
  take(row.memory_limit_bytes,
       either(count_at(memory, "limit_bytes"), count_at(request, "memory_bytes")));
  take(row.gpus, either(count_at(gpu, "count"), count_at(request, "gpus")));
  take(row.gpu_ratio, number_at(gpu, "utilization_ratio"));
  take(row.time_limit_seconds, count_at(request, "time_limit_seconds"));
  take_list(row.nodes, member(usage, "nodes"),
            [](const Json& node) { return text_at(member(node, "host"), "name"); });
  take_list(row.findings, member(usage, "findings"),
            [](const Json& finding) { return text_at(finding, "id"); });
}

// What an event says of the run that it describes, which the row has from now on.
void take_run(JobRow& row, const Json& job, const Json& usage,
              const std::optional<Timestamp>& started, const std::optional<Timestamp>& ended) {
  take(row.state, text_at(job, "state"));
  take_exit(row, text_at(job, "exit_code"));
  take(row.started_at, started);
  take(row.ended_at, ended);
  if (usage.is_object()) take_usage(row, usage);
  if (!row.elapsed_seconds && row.started_at && row.ended_at && *row.ended_at >= *row.started_at) {
    row.elapsed_seconds =
        static_cast<double>(row.ended_at->nanoseconds - row.started_at->nanoseconds) /
        static_cast<double>(kSecond);
  }
}

// ---- runs

constexpr double kShares = 10'000;  // JobRun::Program::share of a whole

std::uint32_t share_of(const std::optional<double>& ratio) {
  return static_cast<std::uint32_t>(std::lround(std::min(ratio.value_or(0), 1.0) * kShares));
}

// `count` of something for so long.
std::uint64_t product_of(const std::optional<double>& seconds,
                         const std::optional<std::uint64_t>& count) {
  constexpr double kMost = 1e18;
  return static_cast<std::uint64_t>(
      std::min(std::round(seconds.value_or(0) * static_cast<double>(count.value_or(0))), kMost));
}

std::optional<std::uint64_t> unused_of(std::uint64_t whole, const std::optional<double>& ratio) {
  if (!ratio) return std::nullopt;
  const double unused = static_cast<double>(whole) * (1 - std::min(*ratio, 1.0));
  return static_cast<std::uint64_t>(std::llround(unused));
}

JobRun run_of(const Event& event, const Json& usage, const std::optional<Timestamp>& started,
              Timestamp ended) {
  JobRow row;
  take_run(row, {}, usage, started, ended);
  const bool partial = text_at(member(usage, "quality"), "status") == "partial";
  JobRun run{.user = either(event.user.name, event.user.id),
             .uid = event.user.id,
             .verified = event.user.verified,
             .account = event.job.account,
             .partition = event.job.partition,
             .ended_at = Timestamp{ended.nanoseconds / kSecond * kSecond},
             .core_seconds = product_of(row.elapsed_seconds, row.cpus),
             .gpu_seconds = product_of(row.elapsed_seconds, row.gpus),
             .cluster = event.cluster};
  run.unused_core_seconds = unused_of(run.core_seconds, row.cpu_ratio);
  // A share of the part that was seen says nothing of the rest.
  if (!partial) run.unused_gpu_seconds = unused_of(run.gpu_seconds, row.gpu_ratio);
  run.nodes = std::move(row.nodes);
  take_list(run.findings, member(usage, "findings"), [](const Json& finding) {
    return text_at(finding, "severity") == "info" ? std::nullopt : text_at(finding, "id");
  });
  const Json& programs = member(usage, "programs");
  for (const Json& program : programs.is_array() ? programs : Json::array()) {
    if (const auto name = text_at(program, "name"))
      run.programs.push_back({*name, share_of(number_at(program, "cpu_ratio"))});
  }
  for (const auto& [key, name] : {std::pair("programs_other", kOtherPrograms),
                                  std::pair("programs_unseen", kUnseenPrograms)}) {
    if (const Json& rest = member(usage, key); rest.is_object())
      run.programs.push_back({name, share_of(number_at(rest, "cpu_ratio"))});
  }
  return run;
}

// The row keeps the last run that failed, else the last one.
void join_task(JobRow& row, const Json& job, const Json& usage,
               const std::optional<Timestamp>& started, const std::optional<Timestamp>& ended) {
  const bool failed = is_failure(text_at(job, "state"));
  const bool kept_failed = row.failed_runs > 0;
  const auto known = end_of(row.started_at, row.ended_at);
  const auto now = end_of(started, ended);
  ++row.runs;
  if (failed) ++row.failed_runs;
  if (kept_failed != failed ? kept_failed : known && now < known) return;
  forget_life(row);
  take_run(row, job, usage, started, ended);
}

// The row keeps the newest life.
void join_life(JobRow& row, const Json& job, const Json& usage,
               const std::optional<Timestamp>& started, const std::optional<Timestamp>& ended) {
  const auto known = end_of(row.started_at, row.ended_at);
  const auto now = end_of(started, ended);
  // Two events may describe one life: its start and its end, or its end and its use.
  const bool same = is_same_start(row, started, ended) || (ended && row.ended_at == ended);
  if (!same) ++row.lives;
  if (!same && known && now < known) return;
  if (!same) forget_life(row);
  // What was said at its start, and came late.
  if (same && row.ended_at && started && !ended) return;
  take_run(row, job, usage, started, ended);
}

}  // namespace

bool can_be_life_of(Timestamp submission, Timestamp life) noexcept {
  constexpr std::int64_t kLongestWait = std::int64_t{180} * 86'400 * kSecond;
  const std::int64_t apart = life.nanoseconds - submission.nanoseconds;
  return apart + kClockSlack >= 0 && apart <= kLongestWait;
}

bool is_failure(const std::optional<std::string>& state) noexcept {
  // sacct(1), JOB STATE CODES: these are not the job's own fault, or not an end.
  constexpr std::array<std::string_view, 8> kNot{"COMPLETED", "CANCELLED", "PREEMPTED",
                                                 "REQUEUED",  "REVOKED",   "RUNNING",
                                                 "PENDING",   "SUSPENDED"};
  return state && std::find(kNot.begin(), kNot.end(), *state) == kNot.end();
}

const std::string& owning_job_id(const Event& event) noexcept {
  const bool is_run = event.kind != "job.script" && event.job.array;
  return is_run && !event.job.array->job_id.empty() ? event.job.array->job_id : event.job.id;
}

JobRow row_of(const Event& submission) {
  JobRow row;
  take_key(row, submission);
  take_owner(row, submission);
  row.event_id = submission.id;
  row.complete = submission.complete;
  row.redacted = !submission.redactions.empty();
  if (submission.script) {
    row.interpreter = submission.script->interpreter;
    row.directives = submission.script->directives;
    for (const std::string& module : submission.script->modules) add_once(row.modules, module);
    for (const Software& used : submission.script->software)
      row.software.push_back(used.kind + ' ' + used.name);
  }
  if (const EventFile* script = submission.file("script"); script != nullptr) {
    row.script_sha256 = script->sha256;
    row.script_size = script->size;
  }
  if (const EventFile* environment = submission.file("environment"); environment != nullptr) {
    row.environment_size = environment->size;
    if (environment->bytes != nullptr &&
        submission.environment_format == EnvironmentFormat::kNulEnded) {
      std::string_view loaded = environment_value(*environment->bytes, "LOADEDMODULES");
      while (!loaded.empty()) add_once(row.modules, take_until(loaded, ':'));
    }
  }
  return row;
}

std::optional<JobRun> join(JobRow& row, const Event& later) {
  if (later.kind != "usage.job" && later.kind != "job.life") return std::nullopt;
  const Json extra = Json::parse(later.extra_json, nullptr, false);
  const Json& job = member(extra, "job");
  const Json& usage = member(extra, kUsage);
  if (row.event_id.empty()) {
    if (row.id.empty()) take_key(row, later);
    row.id = owning_job_id(later);
    auto account = std::move(row.account);
    take_owner(row, later);
    if (row.account_named_at) row.account = std::move(account);
  }
  const auto started = either(time_at(job, "started_at"), time_at(usage, "started_at"));
  const auto ended = either(time_at(job, "ended_at"), time_at(usage, "ended_at"));
  std::optional<JobRun> run;
  if (later.kind == "usage.job" && ended) run = run_of(later, usage, started, *ended);
  if (run) take_account(row, *run, later.job.array.has_value());
  if (later.job.array) {
    join_task(row, job, usage, started, ended);
  } else {
    join_life(row, job, usage, started, ended);
  }
  return run;
}

void take_account(JobRow& row, const JobRun& run, bool is_task) {
  if (!run.account || !run.verified) return;
  const bool is_newest = !row.account_named_at || run.ended_at >= *row.account_named_at;
  if (is_task && row.account_named_at && row.account != run.account) {
    row.account.reset();
  } else if (is_task || is_newest) {
    row.account = run.account;
  }
  if (is_newest) row.account_named_at = run.ended_at;
}

std::pair<std::string_view, std::string_view> software_parts(std::string_view item) noexcept {
  const std::size_t blank = std::min(item.find(' '), item.size());
  return {item.substr(0, blank), item.substr(std::min(blank + 1, item.size()))};
}

std::string_view environment_value(std::string_view environment, std::string_view name) {
  if (environment.empty() || environment.back() != '\0') return {};
  std::string_view found;
  for (const Variable& variable : split_environment(environment)) {
    if (variable.name == name && variable.value.data() != nullptr) found = variable.value;
  }
  return found;
}

}  // namespace scriptorium

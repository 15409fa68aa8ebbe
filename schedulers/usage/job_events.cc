#include "schedulers/usage/job_events.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/time.h"

namespace scriptorium::usage {
namespace {

using Json = nlohmann::ordered_json;

// Thousandths are finer than anything that we measure, and shorter to read.
template <typename Value>
void put(Json& json, const char* key, const std::optional<Value>& value) {
  if (!value) return;
  if constexpr (std::is_floating_point_v<Value>) {
    json[key] = std::round(*value * 1000) / 1000;
  } else {
    json[key] = *value;
  }
}
void put_ratio(Json& json, const char* key, const std::optional<double>& value) {
  if (value) json[key] = std::round(*value * 10000) / 10000;
}
void put_time(Json& json, const char* key, const std::optional<Timestamp>& value) {
  if (value) json[key] = format_rfc3339(*value, TimePrecision::kMilliseconds);
}
void put_block(Json& json, const char* key, Json block) {
  if (!block.empty()) json[key] = std::move(block);
}

Timestamp start_of(const JobView& job) {
  if (job.facts.started_at) return *job.facts.started_at;
  Timestamp first;
  for (const NodeUsage& node : job.nodes) {
    if (first.nanoseconds == 0 || node.job.started_at < first) first = node.job.started_at;
  }
  return first;
}

std::optional<Timestamp> end_of(const JobView& job) {
  if (job.facts.ended_at) return job.facts.ended_at;
  std::optional<Timestamp> last;
  for (const NodeUsage& node : job.nodes)
    last = last ? std::max(*last, node.ended_at) : node.ended_at;
  return last;
}

Json sources(const JobView& job, bool whole) {
  Json json = Json::object();
  if (job.accounting) {
    if (job.totals.cpu_seconds) json["cpu"] = to_string(Method::kAccounting);
    if (job.totals.peak_memory_bytes) json["memory"] = to_string(Method::kAccounting);
    if (whole && (job.totals.gpu_peak_utilization_ratio || job.totals.gpu_peak_memory_bytes))
      json["gpu"] = to_string(Method::kAccounting);
    return json;
  }
  if (job.nodes.empty()) return json;
  const Sources& from = job.nodes.front().source;
  constexpr std::array<std::pair<const char*, std::optional<Method> Sources::*>, 4> kAll{
      {{"cpu", &Sources::cpu},
       {"memory", &Sources::memory},
       {"io", &Sources::io},
       {"gpu", &Sources::gpu}}};
  for (const auto& [key, member] : kAll) {
    if (from.*member) json[key] = to_string(*(from.*member));
  }
  return json;
}

// With which a job script asks its scheduler for something; "" for an unknown one.
std::string_view directive_word(std::string_view scheduler) noexcept {
  if (scheduler == "slurm") return "#SBATCH";
  if (scheduler == "torque") return "#PBS";
  if (scheduler == "gridengine") return "#$";
  if (scheduler == "oar") return "#OAR";
  return {};
}

Json suggestion(const std::string& scheduler, const JobView& job, const Suggestion& from) {
  Json json = Json::object();
  put(json, "cpus", from.request.cpus);
  put(json, "memory_bytes", from.request.memory_bytes);
  put(json, "time_limit_seconds", from.request.time_limit_seconds);
  put(json, "gpus", from.request.gpus);
  const auto lines =
      request_lines(directive_word(scheduler), from.request, job.nodes_expected.value_or(1));
  if (!lines.empty()) json["directives"] = lines;
  if (!from.condition.empty()) json["condition"] = from.condition;
  return json;
}

Json findings(const std::string& scheduler, const JobView& job, const FindingOptions& options) {
  Json list = Json::array();
  for (const Finding& found : find_all(job, options)) {
    Json json{{"id", found.id},
              {"severity", to_string(found.severity)},
              {"value", std::round(found.value * 10000) / 10000}};
    put_ratio(json, "threshold", found.threshold);
    json["unit"] = found.unit;
    json["scope"] = found.scope;
    if (!found.hosts.empty()) json["hosts"] = found.hosts;
    if (!found.steps.empty()) json["steps"] = found.steps;
    put_block(json, "suggest", suggestion(scheduler, job, found.suggest));
    json["text"] = found.text;
    if (auto page = options.help_url(found.id); !page.empty()) json["help_url"] = std::move(page);
    list.push_back(std::move(json));
  }
  return list;
}

Json quality(const JobView& job, const FindingOptions& options) {
  Json json = Json::object();
  json["status"] = to_string(quality_of(job, options));
  put(json, "nodes_reporting", job.nodes_measured);
  put(json, "nodes_expected", job.nodes_expected);
  put(json, "samples", job.samples);
  put_ratio(json, "covered_ratio", job.covered_ratio);
  put(json, "gap_seconds", job.gap_seconds);
  if (job.accounting) json["last_read"] = to_string(LastRead::kAccounting);
  for (const NotCredible& one : job.not_credible) {
    json["not_credible"].push_back(
        {{"figure", one.figure}, {"value", std::round(one.value)}, {"text", one.text}});
  }
  return json;
}

Json request_of(const Request& asked) {
  Json request = Json::object();
  put(request, "nodes", asked.nodes);
  put(request, "cpus", asked.cpus);
  put(request, "memory_bytes", asked.memory_bytes);
  put(request, "gpus", asked.gpus);
  if (asked.shared_gpu) request["shared_gpu"] = true;
  put(request, "time_limit_seconds", asked.time_limit_seconds);
  return request;
}

// What the job used of each resource, a block for each.
void put_resources(Json& json, const JobView& job, bool whole) {
  const Totals& totals = job.totals;
  Json cpu = Json::object();
  put(cpu, "time_seconds", totals.cpu_seconds);
  put(cpu, "user_seconds", totals.user_seconds);
  put(cpu, "system_seconds", totals.system_seconds);
  put(cpu, "allocated", totals.cpus);
  if (whole || job.has_all_cpu_time()) put_ratio(cpu, "efficiency_ratio", job.cpu_ratio());
  put_ratio(cpu, "system_ratio", job.system_ratio());
  put(cpu, "idle_tail_seconds", totals.idle_tail_seconds);
  put_block(json, "cpu", std::move(cpu));

  Json memory = Json::object();
  put(memory, "peak_bytes", totals.peak_memory_bytes);
  put(memory, "peak_node_bytes", totals.peak_node_bytes);
  put(memory, "limit_bytes", totals.memory_bytes);
  if (whole) put_ratio(memory, "efficiency_ratio", job.memory_ratio());
  put(memory, "peak_swap_bytes", totals.peak_swap_bytes);
  put(memory, "oom_kills", totals.oom_kills);
  put_block(json, "memory", std::move(memory));

  Json time = Json::object();
  put_ratio(time, "efficiency_ratio", job.time_ratio());
  put_block(json, "time", std::move(time));

  Json io = Json::object();
  put(io, "read_bytes", totals.read_bytes);
  put(io, "written_bytes", totals.written_bytes);
  put_block(json, "io", std::move(io));

  Json gpu = Json::object();
  if (totals.gpus != 0) gpu["count"] = totals.gpus;
  if (whole) {
    put_ratio(gpu, "utilization_ratio", totals.gpu_utilization_ratio);
    put_ratio(gpu, "memory_efficiency_ratio", totals.gpu_memory_ratio);
    put_ratio(gpu, "peak_utilization_ratio", totals.gpu_peak_utilization_ratio);
    put(gpu, "peak_memory_bytes", totals.gpu_peak_memory_bytes);
    put(gpu, "energy_joules", totals.gpu_energy_joules);
  }
  put_block(json, "gpu", std::move(gpu));

  Json energy = Json::object();
  put(energy, "nodes_joules", totals.nodes_energy_joules);
  put_block(json, "energy", std::move(energy));
}

void put_programs(Json& json, const ProgramShares& shares) {
  for (const ProgramUse& program : shares.programs) {
    Json one{{"name", program.name}};
    for (const auto& [key, text] :
         {std::pair("script", &program.script), std::pair("container", &program.container),
          std::pair("path", &program.path), std::pair("build_id", &program.build_id)}) {
      if (!text->empty()) one[key] = *text;
    }
    put(one, "cpu_seconds", std::optional(program.cpu_seconds));
    put_ratio(one, "cpu_ratio", program.cpu_ratio);
    one["processes"] = program.processes;
    one["threads"] = program.threads;
    put(one, "busy_threads", program.busy_threads);
    put(one, "ranks", program.ranks);
    json["programs"].push_back(std::move(one));
  }
  const auto put_share = [&](const char* key, const std::optional<ProgramShare>& share) {
    if (!share) return;
    put(json[key], "cpu_seconds", std::optional(share->cpu_seconds));
    put_ratio(json[key], "cpu_ratio", share->cpu_ratio);
  };
  put_share("programs_other", shares.other);
  put_share("programs_unseen", shares.unseen);
}

Json usage_of(const std::string& scheduler, const JobView& job, const FindingOptions& options) {
  Json json{{"elapsed_seconds", std::round(job.totals.elapsed_seconds * 1000) / 1000}};
  put_time(json, "started_at", start_of(job));
  put_time(json, "ended_at", end_of(job));
  // What does not cover the job has no share of what it had.
  const bool whole = quality_of(job, options) != QualityStatus::kPartial;
  put_block(json, "source", sources(job, whole));
  put_block(json, "request", request_of(job.facts.request));
  put_resources(json, job, whole);
  Json nodes = Json::array();
  for (const NodeUsage& node : job.nodes) {
    Json one{{"host", {{"name", node.job.node}}}};
    one.update(Json::parse(usage_json(node)));
    // Those of all nodes are listed once; a node's own are in its usage.node.
    for (const char* key :
         {"programs", "programs_other", "programs_unseen", "steps", "steps_other"})
      one.erase(key);
    nodes.push_back(std::move(one));
  }
  put_programs(json, job.programs);
  json.update(Json::parse(steps_json(job.steps)));
  put_block(json, "nodes", std::move(nodes));
  json["quality"] = quality(job, options);
  json["findings"] = findings(scheduler, job, options);
  put_block(json, "suggest", suggestion(scheduler, job, suggest(job, options)));
  return json;
}

}  // namespace

std::string job_event_id(const std::string& cluster, const std::string& scheduler,
                         const std::string& job_id, Timestamp started_at) {
  // Whole seconds, which is how Slurm reports them.
  return event_id(
      {cluster, scheduler, "usage.job", job_id, std::to_string(started_at.nanoseconds / kSecond)});
}

Event job_event(const std::string& cluster, const std::string& scheduler, const JobView& job,
                const FindingOptions& options) {
  const Timestamp started = start_of(job);
  Event event;
  event.id = job_event_id(cluster, scheduler, job.facts.job.id, started);
  event.kind = "usage.job";
  event.time = job.facts.job.submitted_at.value_or(started);
  event.capture =
      job.nodes.empty() ? to_string(Method::kAccounting) : to_string(job.nodes.front().method());
  event.complete = job.accounting ||
                   (!job.nodes.empty() && std::ranges::all_of(job.nodes, &NodeUsage::complete));
  event.cluster = cluster;
  event.scheduler = scheduler;
  if (job.nodes.size() == 1) event.host = job.nodes.front().job.node;
  event.job = job.facts.job;
  event.user = job.facts.user;

  Json extra = Json::object();
  Json more = Json::object();
  put(more, "restarts", job.facts.restarts);
  put(more, "sluid", job.facts.sluid);
  put(more, "state", job.facts.state);
  put(more, "exit_code", job.facts.exit_code);
  put_time(more, "started_at", started);
  put_time(more, "ended_at", end_of(job));
  extra["job"] = std::move(more);
  extra["usage"] = usage_of(scheduler, job, options);
  event.extra_json = extra.dump(-1, ' ', false, Json::error_handler_t::replace);
  return event;
}

}  // namespace scriptorium::usage

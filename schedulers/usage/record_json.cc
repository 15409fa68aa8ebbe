#include <array>
#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>

#include "schedulers/usage/life.h"
#include "schedulers/usage/records.h"

// Every place where a record becomes JSON, or comes from it. What a record holds is listed once, by
// each(), for both ways.
namespace scriptorium::usage {
namespace {

using Json = nlohmann::ordered_json;

template <typename T, typename Record>
concept Of = std::same_as<std::remove_const_t<T>, Record>;

// To the microsecond, so that 0.1 + 0.2 does not fill the line.
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

// ---- what the records hold

void each(auto& visit, Of<Sources> auto& source) {
  visit("cpu", source.cpu);
  visit("memory", source.memory);
  visit("io", source.io);
  visit("gpu", source.gpu);
}

void each(auto& visit, Of<CpuNow> auto& cpu) {
  visit("time_seconds", cpu.time_seconds);
  visit("user_seconds", cpu.user_seconds);
  visit("system_seconds", cpu.system_seconds);
  visit("allocated", cpu.allocated);
  visit("utilization_ratio", cpu.utilization_ratio);
  visit("pressure_some_seconds", cpu.pressure_some_seconds);
  visit("throttled_seconds", cpu.throttled_seconds);
}

void each(auto& visit, Of<MemoryNow> auto& memory) {
  visit("anon_bytes", memory.anon_bytes);
  visit("shmem_bytes", memory.shmem_bytes);
  visit("file_bytes", memory.file_bytes);
  visit("swap_bytes", memory.swap_bytes);
  visit("charged_bytes", memory.charged_bytes);
  visit("peak_charged_bytes", memory.peak_charged_bytes);
  visit("limit_bytes", memory.limit_bytes);
  visit("oom_kills", memory.oom_kills);
  visit("pressure_full_seconds", memory.pressure_full_seconds);
}

void each(auto& visit, Of<IoNow> auto& io) {
  visit("read_bytes", io.read_bytes);
  visit("written_bytes", io.written_bytes);
  visit("pressure_full_seconds", io.pressure_full_seconds);
}

void each(auto& visit, Of<TasksNow> auto& tasks) {
  visit("current", tasks.current);
  visit("peak", tasks.peak);
}

void each(auto& visit, Of<GpuNow> auto& gpu) {
  visit("id", gpu.id);
  visit("index", gpu.index);
  visit("model", gpu.model);
  visit("utilization_ratio", gpu.utilization_ratio);
  visit("memory_used_bytes", gpu.memory_used_bytes);
  visit("memory_limit_bytes", gpu.memory_limit_bytes);
  visit("power_watts", gpu.power_watts);
}

void each(auto& visit, Of<RatioStatistics> auto& statistics) {
  visit("avg_ratio", statistics.avg);
  visit("min_ratio", statistics.min);
  visit("max_ratio", statistics.max);
  visit("p50_ratio", statistics.p50);
}

void each(auto& visit, Of<NodeGpu> auto& gpu) {
  visit("id", gpu.id);
  visit("index", gpu.index);
  visit("model", gpu.model);
  visit("utilization", gpu.utilization);
  visit("peak_memory_bytes", gpu.peak_memory_bytes);
  visit("memory_limit_bytes", gpu.memory_limit_bytes);
  visit("energy_joules", gpu.energy_joules);
  visit("zero_ratio", gpu.zero_ratio);
  visit("longest_zero_seconds", gpu.longest_zero_seconds);
  visit("throttled_ratio", gpu.throttled_ratio);
  visit("samples", gpu.samples);
}

void each(auto& visit, Of<NodeCpu> auto& cpu) {
  visit("time_seconds", cpu.time_seconds);
  visit("user_seconds", cpu.user_seconds);
  visit("system_seconds", cpu.system_seconds);
  visit("allocated", cpu.allocated);
  visit("efficiency_ratio", cpu.efficiency_ratio);
  visit("utilization", cpu.utilization);
  visit("idle_tail_seconds", cpu.idle_tail_seconds);
  visit("pressure_some_seconds", cpu.pressure_some_seconds);
  visit("throttled_seconds", cpu.throttled_seconds);
}

void each(auto& visit, Of<NodeMemory> auto& memory) {
  visit("peak_working_set_bytes", memory.peak_working_set_bytes);
  visit("avg_working_set_bytes", memory.avg_working_set_bytes);
  visit("peak_charged_bytes", memory.peak_charged_bytes);
  visit("peak_swap_bytes", memory.peak_swap_bytes);
  visit("limit_bytes", memory.limit_bytes);
  visit("oom_kills", memory.oom_kills);
  visit("pressure_full_seconds", memory.pressure_full_seconds);
}

void each(auto& visit, Of<NodeTasks> auto& tasks) { visit("peak", tasks.peak); }

void each(auto& visit, Of<ProgramUse> auto& program) {
  visit("name", program.name);
  visit("script", program.script);
  visit("container", program.container);
  visit("path", program.path);
  visit("build_id", program.build_id);
  visit("cpu_seconds", program.cpu_seconds);
  visit("cpu_ratio", program.cpu_ratio);
  visit("processes", program.processes);
  visit("threads", program.threads);
  visit("busy_threads", program.busy_threads);
  visit("ranks", program.ranks);
}

void each(auto& visit, Of<ProgramShare> auto& share) {
  visit("cpu_seconds", share.cpu_seconds);
  visit("cpu_ratio", share.cpu_ratio);
}

// Members of what has them, not an object of their own.
void each(auto& visit, Of<ProgramShares> auto& shares) {
  visit("programs", shares.programs);
  visit("programs_other", shares.other);
  visit("programs_unseen", shares.unseen);
}

void each(auto& visit, Of<ProgramTable::State> auto& programs) {
  visit("seen", programs.programs);
  visit("other_cpu_seconds", programs.other_cpu_seconds);
  visit("processes", programs.processes);
}

void each(auto& visit, Of<StepGpu> auto& gpu) {
  visit("count", gpu.count);
  visit("utilization_ratio", gpu.utilization_ratio);
  visit("peak_memory_bytes", gpu.peak_memory_bytes);
}

void each(auto& visit, Of<StepUse> auto& step) {
  visit("name", step.name);
  visit("started_at", step.started_at);
  visit("ended_at", step.ended_at);
  visit("elapsed_seconds", step.elapsed_seconds);
  visit("cpu", step.cpu);
  visit("memory", step.memory);
  visit("gpu", step.gpu);
  visit("last_read", step.last_read);
}

void each(auto& visit, Of<StepRest> auto& rest) {
  visit("steps", rest.steps);
  visit("cpu_seconds", rest.cpu_seconds);
}

// Members of what has them, not an object of their own.
void each(auto& visit, Of<StepUses> auto& uses) {
  visit("steps", uses.steps);
  visit("steps_other", uses.other);
}

void each(auto& visit, Of<StepTable::Step> auto& step) {
  visit("name", step.name);
  visit("runs", step.runs);
  visit("started_at", step.started_at);
  visit("last_at", step.last_at);
  visit("started_ns", step.started_ns);
  visit("last_ns", step.last_ns);
  visit("readings", step.readings);
  visit("cpu_seconds", step.cpu_seconds);
  visit("cpus", step.cpus);
  visit("peak_working_set", step.peak_working_set);
  visit("peak_charged", step.peak_charged);
  visit("oom_kills", step.oom_kills);
  visit("gpu", step.gpu);
  visit("last_read", step.last_read);
}

void each(auto& visit, Of<StepTable::State> auto& steps) {
  visit("seen", steps.steps);
  visit("left_out", steps.left_out);
  visit("highest", steps.highest);
}

void each(auto& visit, Of<NodeQuality> auto& quality) {
  visit("samples", quality.samples);
  visit("covered_ratio", quality.covered_ratio);
  visit("last_read", quality.last_read);
  visit("gap_seconds", quality.gap_seconds);
}

void each(auto& visit, Of<JobSeen> auto& job) {
  visit("scheduler", job.scheduler);
  visit("id", job.job_id);
  visit("node", job.node);
  visit("started_ns", job.started_at.nanoseconds);
  visit("sluid", job.sluid);
  visit("restarts", job.restarts);
  visit("uid", job.uid);
  visit("uid_trusted", job.uid_trusted);
  visit("uid_problem", job.uid_problem);
  visit("batch_step", job.batch_step);
  visit("other_steps", job.other_steps);
}

void each(auto& visit, Of<GpuRecord> auto& record) {
  visit("gpu", record.gpu);
  visit("utilization_seconds", record.utilization_seconds);
  visit("seconds", record.seconds);
  visit("zero_seconds", record.zero_seconds);
  visit("longest_zero_seconds", record.longest_zero_seconds);
  visit("clock_seconds", record.clock_seconds);
  visit("throttled_seconds", record.throttled_seconds);
  visit("energy_origin_joules", record.energy_origin_joules);
  visit("energy_joules", record.energy_joules);
  visit("integrated_joules", record.integrated_joules);
}

void each(auto& visit, Of<LifeState> auto& life) {
  visit("job", life.job);
  visit("inodes", life.inodes);
  visit("started_ns", life.started_ns);
  visit("seq", life.seq);
  visit("readings", life.readings);
  visit("first_ns", life.first_ns);
  visit("last_ns", life.last_ns);
  visit("last_time_ns", life.last_time.nanoseconds);
  visit("gap_seconds", life.gap_seconds);
  visit("uncovered_seconds", life.uncovered_seconds);
  visit("source", life.source);
  visit("cpu", life.cpu);
  visit("memory", life.memory);
  visit("io", life.io);
  visit("peak_tasks", life.peak_tasks);
  visit("anchor_ns", life.anchor_ns);
  visit("anchor_cpu_seconds", life.anchor_cpu_seconds);
  visit("least", life.least);
  visit("most", life.most);
  visit("busy_seconds", life.busy_seconds);
  visit("counted_seconds", life.counted_seconds);
  visit("utilization", life.utilization);
  visit("busy_until_ns", life.busy_until_ns);
  visit("last_working_set", life.last_working_set);
  visit("peak_working_set", life.peak_working_set);
  visit("peak_swap", life.peak_swap);
  visit("working_set_seconds", life.working_set_seconds);
  visit("memory_seconds", life.memory_seconds);
  visit("gpus", life.gpus);
  visit("programs", life.programs);
  visit("steps", life.steps);
}

// ---- to JSON

template <typename Record>
Json json(const Record& record);

struct Writer {
  Json out = Json::object();

  void operator()(const char* key, double value) {
    if (std::isfinite(value)) out[key] = rounded(value);
  }
  template <typename Number>
    requires std::integral<Number>
  void operator()(const char* key, Number value) {
    out[key] = value;
  }
  // Text that is not known is empty.
  void operator()(const char* key, const std::string& value) {
    if (!value.empty()) out[key] = value;
  }
  void operator()(const char* key, Method method) { out[key] = to_string(method); }
  void operator()(const char* key, LastRead last) { out[key] = to_string(last); }
  void operator()(const char* key, const UtilizationHistogram& histogram) {
    out[key] = histogram.text();
  }
  void operator()(const char* key, const std::array<std::uint64_t, kControllers>& inodes) {
    for (std::size_t i = 0; i < kControllers; ++i) {
      if (inodes.at(i) != 0) out[key][to_string(static_cast<Controller>(i))] = inodes.at(i);
    }
  }
  void operator()(const char* key, Timestamp time) {
    out[key] = format_rfc3339(time, TimePrecision::kMicroseconds);
  }
  void operator()(const char* key, const StepGpu& gpu) {
    if (gpu.count > 0) out[key] = json(gpu);
  }
  void operator()(const char* key, const ProgramTable& programs) { (*this)(key, programs.state()); }
  void operator()(const char* key, const StepTable& steps) {
    if (!steps.state().steps.empty()) (*this)(key, steps.state());
  }
  template <typename T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  template <typename T>
  void operator()(const char* key, const std::vector<T>& list) {
    for (const T& one : list) out[key].push_back(json(one));
  }
  template <typename Record>
    requires std::is_class_v<Record>
  void operator()(const char* key, const Record& record) {
    if (Json object = json(record); !object.empty()) out[key] = std::move(object);
  }
};

template <typename Record>
Json json(const Record& record) {
  Writer writer;
  each(writer, record);
  return std::move(writer.out);
}

std::string text(const Json& record) {
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json node_json(const NodeUsage& node) {
  Writer writer;
  writer("started_at", node.job.started_at);
  writer("ended_at", node.ended_at);
  writer("elapsed_seconds", node.elapsed_seconds);
  writer("source", node.source);
  writer("cpu", node.cpu);
  writer("memory", node.memory);
  writer("io", node.io);
  writer("tasks", node.tasks);
  writer("gpus", node.gpus);
  each(writer, node.programs);
  each(writer, node.steps);
  if (node.node_cpus) writer.out["node"]["cpus"] = *node.node_cpus;
  if (node.node_memory_bytes) writer.out["node"]["memory_bytes"] = *node.node_memory_bytes;
  writer("quality", node.quality);
  return std::move(writer.out);
}

// ---- from JSON

template <typename Record>
void read(const Json& from, Record& into);

// A member that is not there leaves the value unchanged.
struct Reader {
  const Json& from;

  template <typename T>
    requires std::is_arithmetic_v<T> || std::same_as<T, std::string>
  static void take(const Json& value, T& into) {
    into = value.get<T>();
  }
  static void take(const Json& value, Method& into) {
    into = method_from(value.get<std::string>()).value_or(into);
  }
  static void take(const Json& value, LastRead& into) {
    into = last_read_from(value.get<std::string>()).value_or(into);
  }
  static void take(const Json& value, UtilizationHistogram& into) {
    into = UtilizationHistogram::from(value.get_ref<const std::string&>());
  }
  static void take(const Json& value, std::array<std::uint64_t, kControllers>& into) {
    for (std::size_t i = 0; i < kControllers; ++i)
      Reader{value}(to_string(static_cast<Controller>(i)), into.at(i));
  }
  static void take(const Json& value, ProgramTable& into) {
    ProgramTable::State state;
    read(value, state);
    into = ProgramTable::from(std::move(state));
  }
  static void take(const Json& value, StepTable& into) {
    StepTable::State state;
    read(value, state);
    into = StepTable::from(std::move(state));
  }
  static void take(const Json& value, Timestamp& into) {
    into = parse_rfc3339(value.get_ref<const std::string&>()).value_or(into);
  }
  template <typename T>
  static void take(const Json& value, std::optional<T>& into) {
    T got{};
    take(value, got);
    into = std::move(got);
  }
  template <typename T>
  static void take(const Json& value, std::vector<T>& into) {
    for (const Json& one : value) take(one, into.emplace_back());
  }
  template <typename Record>
    requires(std::is_class_v<Record> && !std::same_as<Record, std::string>)
  static void take(const Json& value, Record& into) {
    read(value, into);
  }

  template <typename T>
  void operator()(const char* key, T& into) const {
    if (const auto found = from.find(key); found != from.end()) take(*found, into);
  }
};

template <typename Record>
void read(const Json& from, Record& into) {
  const Reader reader{from};
  each(reader, into);
}

// Reads `record` and lets `use` take it apart; what is not as it must be becomes kCorrupt.
template <typename T, typename Use>
Result<T> parse(std::string_view record, const char* what, Use use) try {
  T result;
  use(Json::parse(record), result);
  return result;
} catch (const Json::exception& e) {
  return Error{ErrorKind::kCorrupt, std::string(what) + ": " + e.what()};
}

}  // namespace

std::string usage_json(const UsageSample& sample) {
  Writer writer;
  writer("seq", sample.seq);
  writer("interval_seconds", sample.interval_seconds);
  writer("elapsed_seconds", sample.elapsed_seconds);
  writer("source", sample.source);
  writer("cpu", sample.cpu);
  Json memory = Json::object();
  if (const auto working = sample.memory.working_set_bytes())
    memory["working_set_bytes"] = *working;
  memory.update(json(sample.memory));
  if (!memory.empty()) writer.out["memory"] = std::move(memory);
  writer("io", sample.io);
  writer("tasks", sample.tasks);
  writer("gpus", sample.gpus);
  return text(writer.out);
}

std::string usage_json(const NodeUsage& node) { return text(node_json(node)); }

std::string steps_json(const StepUses& steps) { return text(json(steps)); }

std::string node_record(const NodeUsage& node) {
  return text({{"job", json(node.job)},
               {"ended_ns", node.ended_at.nanoseconds},
               {"usage", node_json(node)}});
}

Result<NodeUsage> parse_node(std::string_view record) {
  return parse<NodeUsage>(record, "record of a node", [](const Json& all, NodeUsage& node) {
    const Json& usage = all.at("usage");
    read(all.at("job"), node.job);
    node.ended_at.nanoseconds = all.at("ended_ns").get<std::int64_t>();
    node.elapsed_seconds = usage.at("elapsed_seconds").get<double>();
    const Reader reader{usage};
    reader("source", node.source);
    reader("cpu", node.cpu);
    reader("memory", node.memory);
    reader("io", node.io);
    reader("tasks", node.tasks);
    reader("gpus", node.gpus);
    each(reader, node.programs);
    each(reader, node.steps);
    reader("quality", node.quality);
    if (const auto machine = usage.find("node"); machine != usage.end()) {
      const Reader whole{*machine};
      whole("cpus", node.node_cpus);
      whole("memory_bytes", node.node_memory_bytes);
    }
  });
}

std::string life_record(const LifeState& life) { return text(json(life)); }

Result<LifeState> parse_life(std::string_view record) {
  return parse<LifeState>(record, "record of a job's life", [](const Json& all, LifeState& life) {
    // Without these it is nobody's.
    static_cast<void>(all.at("job").at("id"));
    static_cast<void>(all.at("started_ns"));
    read(all, life);
  });
}

}  // namespace scriptorium::usage

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "schedulers/usage/finding_words.h"
#include "schedulers/usage/findings.h"
#include "tests/schedulers/usage/job_fixtures.h"

namespace scriptorium::usage {
namespace {

using Ids = std::vector<std::string>;

// Their boundaries are those of readings of a GPU, and are tested beside these.
constexpr std::array kGpuRules = {"gpu_unused",    "gpu_low",        "gpu_idle_run",
                                  "gpu_throttled", "gpu_memory_low", "gpu_host_bound"};

// The default thresholds, with some rules switched on or thresholds set that a site must set.
FindingOptions with(const std::vector<std::string>& on,
                    const std::vector<std::pair<std::string, double>>& set = {}) {
  FindingOptions options;
  for (const std::string& id : on) options.enable(id, true);
  for (const auto& [key, value] : set) options.set(key, value);
  return options;
}

// A job with nothing to find; a row of the table changes what it is about. The time and the CPUs
// are powers of two, so that a ratio of them is the number that the row says.
struct Sketch {
  double seconds = 4096;
  std::vector<double> busy = {1.0};        // of the CPUs, for each node; negative: not measured
  std::uint32_t cpus = 4, node_cpus = 64;  // of each node
  std::uint64_t memory = 4 * kGiB, peak = 3 * kGiB, node_memory = 256 * kGiB;  // likewise
  std::uint64_t swap = 0, kills = 0, read = 0, written = 0;
  double user_seconds = 1000, system_seconds = 10;
  double idle_tail = 0;
  double most_at_once = 0;  // of the CPUs
  // Parts of the time.
  std::optional<double> cpu_pressure = 0, throttled = 0;
  double memory_pressure = 0, io_pressure = 0;
  std::uint32_t gpus = 0;
  bool shared_gpu = false, unread_gpu = false;
  double time_limit = 0;  // 0: a little more than it took
  std::optional<std::string> state = "COMPLETED";
  std::optional<std::uint32_t> nodes;  // that it had; absent: those that were measured
  bool nodes_known = true;
  bool accounting = false;  // nobody sampled it
  std::uint64_t samples = 120;
  double covered = 1;
  LastRead last_read = LastRead::kRemoval;
  FindingOptions options;

  NodeUsage node(std::size_t number) const {
    NodeUsage made = fixtures::node("n" + std::to_string(number), seconds);
    made.cpu = {.time_seconds = busy[number] * seconds * cpus,
                .user_seconds = user_seconds,
                .system_seconds = system_seconds,
                .allocated = cpus,
                .utilization = {.max = most_at_once},
                .idle_tail_seconds = idle_tail};
    if (busy[number] < 0) made.cpu = {.allocated = cpus};
    if (cpu_pressure) made.cpu.pressure_some_seconds = *cpu_pressure * seconds;
    if (throttled) made.cpu.throttled_seconds = *throttled * seconds;
    made.memory = {.peak_working_set_bytes = peak,
                   .peak_swap_bytes = swap,
                   .limit_bytes = memory,
                   .oom_kills = kills,
                   .pressure_full_seconds = memory_pressure * seconds};
    made.io = {read, written, io_pressure * seconds};
    made.node_cpus = node_cpus;
    made.node_memory_bytes = node_memory;
    made.quality = {.samples = samples, .covered_ratio = covered, .last_read = last_read};
    if (unread_gpu) made.gpus = {NodeGpu{.id = "MIG-1"}};
    return made;
  }
  JobView view() const {
    const std::uint32_t count = nodes.value_or(static_cast<std::uint32_t>(busy.size()));
    JobFacts facts;
    facts.job.id = "4711";
    facts.state = state;
    if (nodes_known)
      facts.request = {.nodes = count, .cpus = count * cpus, .memory_bytes = count * memory};
    facts.request.gpus = gpus;
    facts.request.shared_gpu = shared_gpu;
    facts.request.time_limit_seconds = time_limit > 0 ? time_limit : seconds * 1.25;
    std::vector<NodeUsage> measured;
    for (std::size_t i = 0; i < busy.size(); ++i) measured.push_back(node(i));
    JobView made = view_of(facts, std::move(measured));
    if (accounting) {
      made.accounting = true;
      made.nodes.clear();
    }
    return made;
  }
  // "cpu_low warning"
  Ids findings() const {
    Ids result;
    for (const Finding& found : find_all(view(), options))
      result.push_back(std::string(found.id) + " " + to_string(found.severity));
    return result;
  }
};

// Two jobs on the two sides of one boundary of a rule, and all that is found of each.
struct Boundary {
  std::string rule;
  std::string name;  // the key of the threshold, or what else the rule asks
  Sketch first;
  Ids found_of_first;
  Sketch second;
  Ids found_of_second;
};

std::vector<Boundary> cpu_boundaries() {
  const Ids low = {"cpu_low warning"};
  const Ids serial = {"cpu_low warning", "cpu_serial warning"};
  return {
      {"cpu_low",
       "cpu_low_notice_ratio",
       {.busy = {0.80}},
       {},
       {.busy = {0.7999}},
       {"cpu_low notice"}},
      {"cpu_low",
       "cpu_low_warning_ratio",
       {.busy = {0.65}},
       {"cpu_low notice"},
       {.busy = {0.6499}},
       low},
      {"cpu_low", "a GPU", {.busy = {0.5}, .gpus = 1}, {}, {.busy = {0.5}}, low},
      {"cpu_low", "a part of a GPU", {.busy = {0.5}, .shared_gpu = true}, {}, {.busy = {0.5}}, low},
      {"cpu_low",
       "a GPU that the node saw",
       {.busy = {0.5}, .unread_gpu = true},
       {},
       {.busy = {0.5}},
       low},
      {"cpu_low",
       "the time in which nobody saw it",
       {.busy = {0.676}, .covered = 0.875, .last_read = LastRead::kSample},
       {},
       {.busy = {0.674}, .covered = 0.875, .last_read = LastRead::kSample},
       {"cpu_low notice"}},
      {"cpu_low",
       "a counter that has all of the time",
       {.busy = {0.70}, .covered = 0.875, .last_read = LastRead::kSample},
       {},
       {.busy = {0.70}, .covered = 0.875},
       {"cpu_low notice"}},
      {"cpu_low",
       "min_elapsed_seconds",
       {.seconds = 299.9, .busy = {0.5}},
       {},
       {.seconds = 300, .busy = {0.5}},
       low},
      {"cpu_low",
       "min_samples",
       {.busy = {0.5}, .samples = 1},
       {},
       {.busy = {0.5}, .samples = 2},
       low},
      {"cpu_low",
       "min_covered_ratio",
       {.busy = {0.5}, .covered = 0.7999},
       {},
       {.busy = {0.5}, .covered = 0.80},
       low},
      {"cpu_low",
       "all nodes measured",
       {.busy = {0.5, 0.5}, .nodes = 3},
       {},
       {.busy = {0.5, 0.5}},
       low},
      {"cpu_low", "CPU time measured", {.busy = {0.5, -1}}, {}, {.busy = {0.5, 0.5}}, low},

      {"cpu_unused_node",
       "nothing",
       {.busy = {1, 0.001}},
       {"cpu_low warning", "cpu_imbalance notice"},
       {.busy = {1, 0.000999}},
       {"cpu_unused_node critical", "cpu_low warning", "cpu_imbalance notice"}},
      {"cpu_unused_node",
       "another node works",
       {.busy = {0.0005, 0.0005}},
       low,
       {.busy = {0.0005, 0.001}},
       {"cpu_unused_node critical", "cpu_low warning"}},

      {"cpu_serial",
       "cpu_serial_least_cpus",
       {.busy = {0.85 / 4}},
       low,
       {.busy = {0.8501 / 4}},
       serial},
      {"cpu_serial",
       "cpu_serial_most_cpus",
       {.busy = {1.01 / 4}},
       low,
       {.busy = {1.0099 / 4}},
       serial},
      {"cpu_serial",
       "several CPUs",
       {.busy = {0.9}, .cpus = 1},
       {},
       {.busy = {0.45}, .cpus = 2},
       serial},
      {"cpu_serial",
       "CPUs at once",
       {.busy = {0.25}, .most_at_once = 1.5 / 4},
       low,
       {.busy = {0.25}, .most_at_once = 1.4999 / 4},
       serial},
      {"cpu_serial", "one node", {.busy = {0.125, 0.125}}, low, {.busy = {0.25}}, serial},
      {"cpu_serial",
       "one node of as many as there were",
       {.busy = {0.125, 0.125}, .nodes_known = false},
       low,
       {.busy = {0.25}, .nodes_known = false},
       serial},
      {"cpu_serial",
       "one node, by accounting",
       {.busy = {0.125, 0.125}, .accounting = true},
       low,
       {.busy = {0.25}, .accounting = true},
       serial},
      {"cpu_serial", "a GPU", {.busy = {0.25}, .gpus = 1}, {}, {.busy = {0.25}}, serial},
      {"cpu_serial",
       "the time in which nobody saw it",
       {.busy = {0.9 / 4}, .covered = 0.97, .last_read = LastRead::kSample},
       low,
       {.busy = {0.9 / 4}, .covered = 0.98, .last_read = LastRead::kSample},
       serial},

      {"cpu_oversubscribed",
       "cpu_oversubscribed_ratio",
       {.cpu_pressure = 0.2},
       {},
       {.cpu_pressure = 0.2001},
       {"cpu_oversubscribed notice"}},
      {"cpu_oversubscribed",
       "cpu_oversubscribed_ratio by throttling",
       {.cpu_pressure = {}, .throttled = 0.2},
       {},
       {.cpu_pressure = {}, .throttled = 0.2001},
       {"cpu_oversubscribed notice"}},
      {"cpu_oversubscribed",
       "pressure rather than throttling",
       {.throttled = 0.5},
       {},
       {.cpu_pressure = {}, .throttled = 0.5},
       {"cpu_oversubscribed notice"}},

      {"cpu_imbalance",
       "cpu_imbalance_ratio",
       {.busy = {1, 0.5}},
       {"cpu_low notice"},
       {.busy = {1, 0.4999}},
       {"cpu_low notice", "cpu_imbalance notice"}},
      {"cpu_imbalance",
       "cpu_imbalance_busy_ratio",
       {.busy = {0.01, 0.1}},
       low,
       {.busy = {0.01, 0.1001}},
       {"cpu_low warning", "cpu_imbalance notice"}},
      {"cpu_imbalance",
       "every node measured",
       {.busy = {1, 0.45, -1}},
       {},
       {.busy = {1, 0.45, 1}},
       {"cpu_imbalance notice"}},

      {"idle_tail",
       "idle_tail_seconds",
       {.seconds = 1024, .idle_tail = 599.9},
       {},
       {.seconds = 1024, .idle_tail = 600},
       {"idle_tail warning"}},
      {"idle_tail",
       "idle_tail_ratio",
       {.idle_tail = 1023.9},
       {},
       {.idle_tail = 1024},
       {"idle_tail warning"}},

      {"system_time",
       "system_time_ratio",
       {.user_seconds = 3001, .system_seconds = 1000},
       {},
       {.user_seconds = 3000, .system_seconds = 1000},
       {"system_time notice"}},
      {"system_time",
       "system_time_seconds",
       {.user_seconds = 59.9, .system_seconds = 59.9},
       {},
       {.user_seconds = 60, .system_seconds = 60},
       {"system_time notice"}},
  };
}

std::vector<Boundary> memory_boundaries() {
  const Ids over = {"mem_over notice"};
  const Ids oom = {"mem_oom critical"};
  constexpr std::uint64_t kHundredth = 16 * kGiB / 100;
  return {
      {"mem_over",
       "mem_over_notice_ratio",
       {.memory = 10 * kGiB, .peak = 7 * kGiB},
       {},
       {.memory = 10 * kGiB, .peak = 7 * kGiB - 1},
       over},
      {"mem_over",
       "mem_over_warning_ratio",
       {.memory = 20 * kGiB, .peak = 7 * kGiB},
       over,
       {.memory = 20 * kGiB, .peak = 7 * kGiB - 1},
       {"mem_over warning"}},
      // By default, sites have no memory for each CPU that everybody gets.
      {"mem_over",
       "mem_over_default_bytes_per_cpu",
       {.peak = 2 * kGiB, .options = with({}, {{"mem_over_default_bytes_per_cpu", kGiB}})},
       {},
       {.peak = 2 * kGiB, .options = with({}, {{"mem_over_default_bytes_per_cpu", kGiB - 1}})},
       over},
      {"mem_over",
       "mem_over_whole_node_ratio",
       {.cpus = 17, .node_cpus = 20, .peak = 2 * kGiB},
       {},
       {.cpus = 17, .node_cpus = 21, .peak = 2 * kGiB},
       over},
      {"mem_over",
       "nodes whose size is known",
       {.node_cpus = 4, .peak = 2 * kGiB},
       {},
       {.node_cpus = 4, .peak = 2 * kGiB, .accounting = true},
       over},
      {"mem_over", "a kill for memory", {.peak = kGiB, .kills = 1}, oom, {.peak = 2 * kGiB}, over},
      {"mem_over",
       "a run that was cut short",
       {.peak = 2 * kGiB, .state = "FAILED"},
       {},
       {.peak = 2 * kGiB},
       over},
      {"mem_over",
       "a state that nobody said",
       {.peak = 2 * kGiB, .state = "CANCELLED"},
       {},
       {.peak = 2 * kGiB, .state = {}},
       over},
      {"mem_over",
       "all nodes measured",
       {.busy = {1, 1}, .peak = 2 * kGiB, .nodes = 3},
       {},
       {.busy = {1, 1}, .peak = 2 * kGiB},
       over},

      {"mem_oom", "a kill", {}, {}, {.kills = 1}, oom},
      {"mem_oom", "the state", {.state = "FAILED"}, {}, {.state = "OUT_OF_MEMORY"}, oom},
      {"mem_oom",
       "always",
       {.seconds = 60, .samples = 1},
       {},
       {.seconds = 60, .kills = 1, .samples = 1},
       oom},

      {"mem_near_limit",
       "mem_near_limit_ratio",
       {.memory = 10 * kGiB, .peak = 9 * kGiB - 1},
       {},
       {.memory = 10 * kGiB, .peak = 9 * kGiB},
       {"mem_near_limit notice"}},
      {"mem_near_limit",
       "a kill for memory",
       {.peak = 4 * kGiB, .kills = 1},
       oom,
       {.peak = 4 * kGiB},
       {"mem_near_limit notice"}},

      {"mem_swap",
       "mem_swap_bytes",
       {.swap = 64 * kMiB - 1},
       {},
       {.swap = 64 * kMiB},
       {"mem_swap notice"}},
      {"mem_swap",
       "mem_swap_ratio",
       {.memory = 16 * kGiB, .peak = 12 * kGiB, .swap = kHundredth},
       {},
       {.memory = 16 * kGiB, .peak = 12 * kGiB, .swap = kHundredth + 1},
       {"mem_swap notice"}},

      {"mem_pressure",
       "mem_pressure_ratio",
       {.memory_pressure = 0.05},
       {},
       {.memory_pressure = 0.0501},
       {"mem_pressure notice"}},
  };
}

std::vector<Boundary> other_boundaries() {
  const Ids over = {"time_over notice"};
  const Ids heavy = {"io_heavy notice"};
  const Ids parts = {"fragmented notice"};
  const FindingOptions on = with({"fragmented"});
  // By default, a site has no limit for the bytes in a second.
  const FindingOptions mib_a_second = with({}, {{"io_heavy_bytes_per_second", kMiB}});
  Sketch part{.busy = {1, 1}, .cpus = 499, .node_cpus = 1000, .options = on};
  const auto but = [&part](auto change) {
    Sketch other = part;
    change(other);
    return other;
  };
  return {
      {"time_over",
       "time_over_seconds",
       {.seconds = 900, .time_limit = 2000},
       {},
       {.seconds = 900.1, .time_limit = 2000},
       over},
      {"time_over",
       "time_over_notice_ratio",
       {.seconds = 3000, .time_limit = 5000},
       {},
       {.seconds = 2999, .time_limit = 5000},
       over},
      {"time_over",
       "time_over_warning_ratio",
       {.seconds = 1000, .time_limit = 10000},
       over,
       {.seconds = 999, .time_limit = 10000},
       {"time_over warning"}},
      {"time_over",
       "a run that was cut short",
       {.time_limit = 8192, .state = "FAILED"},
       {},
       {.time_limit = 8192},
       over},
      {"time_over",
       "a state that nobody said",
       {.time_limit = 8192, .state = {}},
       {},
       {.time_limit = 8192},
       over},

      {"time_out",
       "the state",
       {.state = "CANCELLED"},
       {},
       {.state = "TIMEOUT"},
       {"time_out critical"}},
      {"time_out",
       "always",
       {.seconds = 60, .samples = 1},
       {},
       {.seconds = 60, .state = "TIMEOUT", .samples = 1},
       {"time_out critical"}},

      {"io_heavy", "io_heavy_ratio", {.io_pressure = 0.10}, {}, {.io_pressure = 0.1001}, heavy},
      {"io_heavy",
       "io_heavy_bytes_per_second",
       {.read = 2048 * kMiB, .written = 2048 * kMiB - 1, .options = mib_a_second},
       {},
       {.read = 2048 * kMiB, .written = 2048 * kMiB, .options = mib_a_second},
       heavy},
      {"io_heavy",
       "a site that has a limit",
       {.read = 4096 * kGiB},
       {},
       {.read = 4096 * kGiB, .options = mib_a_second},
       heavy},

      {"short_job",
       "short_job_seconds",
       {.seconds = 30},
       {},
       {.seconds = 29.9},
       {"short_job info"}},

      {"fragmented",
       "fragmented_cpu_ratio",
       but([](Sketch& job) { job.cpus = 500; }),
       {},
       part,
       parts},
      {"fragmented",
       "fragmented_mem_ratio",
       but([](Sketch& job) {
         job.memory = 10 * kGiB, job.peak = 8 * kGiB, job.node_memory = 10 * kGiB;
       }),
       {},
       but([](Sketch& job) {
         job.memory = 10 * kGiB, job.peak = 8 * kGiB - 1, job.node_memory = 10 * kGiB;
       }),
       parts},
      {"fragmented", "several nodes", but([](Sketch& job) { job.busy = {1}; }), {}, part, parts},
      {"fragmented", "a GPU", but([](Sketch& job) { job.gpus = 1; }), {}, part, parts},
      {"fragmented", "switched on", but([](Sketch& job) { job.options = {}; }), {}, part, parts},
  };
}

std::vector<Boundary> boundaries() {
  std::vector<Boundary> all = cpu_boundaries();
  for (auto&& more : {memory_boundaries(), other_boundaries()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(FindingBoundariesTest, AJobOnEachSideOfABoundaryHasExactlyItsFindings) {
  EXPECT_THAT(Sketch{}.findings(), ::testing::IsEmpty());
  for (const Boundary& one : boundaries()) {
    EXPECT_THAT(one.first.findings(), ::testing::UnorderedElementsAreArray(one.found_of_first))
        << one.rule << ": " << one.name << ", the first job";
    EXPECT_THAT(one.second.findings(), ::testing::UnorderedElementsAreArray(one.found_of_second))
        << one.rule << ": " << one.name << ", the second job";
  }
}

TEST(FindingBoundariesTest, EveryRuleAndEveryThresholdHasItsBoundary) {
  std::set<std::string, std::less<>> rules, names;
  for (const Boundary& one : boundaries()) {
    const auto finds = [&one](const Ids& found) {
      return std::ranges::count_if(
          found, [&one](const std::string& id) { return id.starts_with(one.rule + " "); });
    };
    EXPECT_NE(one.found_of_first, one.found_of_second) << one.rule << ": " << one.name;
    EXPECT_EQ(finds(one.found_of_second), 1) << one.rule << ": " << one.name;
    if (finds(one.found_of_first) == 0) rules.insert(one.rule);
    names.insert(one.name);
  }
  for (const FindingRuleInfo& rule : finding_rules()) {
    if (std::ranges::find(kGpuRules, rule.id) != kGpuRules.end()) continue;
    EXPECT_TRUE(rules.contains(rule.id)) << rule.id << ": add a row for it above";
  }
  for (const FindingParameter& parameter : finding_parameters()) {
    if (parameter.key.starts_with("gpu_")) continue;
    EXPECT_TRUE(names.contains(parameter.key)) << parameter.key << ": add a row for it above";
  }
}

}  // namespace
}  // namespace scriptorium::usage

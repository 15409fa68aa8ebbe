#include "schedulers/usage/finding_options.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/text.h"
#include "schedulers/usage/finding_words.h"

namespace scriptorium::usage {
namespace {

constexpr double kMuch = 1e15;  // "any"

template <typename List, typename Member>
std::size_t index_in(const List& list, Member member, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(list, name, member) - list.begin());
}
std::size_t parameter_index(std::string_view key) {
  return index_in(finding_parameters(), &FindingParameter::key, key);
}
std::size_t rule_index(std::string_view id) {
  return index_in(finding_rules(), &FindingRuleInfo::id, id);
}

// Reads the entries of [source.NAME.findings] one by one.
class Reader {
 public:
  Reader(const Table& table, Problems& problems) : table_(table), problems_(problems) {}

  FindingOptions read() {
    for (const TableEntry& entry : table_.entries) {
      if (entry.key == "off" || entry.key == "on") {
        read_switches(entry);
      } else {
        read_parameter(entry);
      }
    }
    return std::move(options_);
  }

 private:
  void add(const TableEntry& entry, std::string problem, std::string allowed,
           std::string near = {}) {
    problems_.add({entry.value.position, options_detail::join_key(table_.path, entry.key),
                   std::move(problem), std::move(allowed), entry.value.text(), std::move(near)});
  }

  void read_switches(const TableEntry& entry) {
    const OptionInfo info{.name = entry.key, .type = "list of strings"};
    std::vector<std::string> names;
    if (!options_detail::get(entry.value, table_, info, problems_, names)) return;
    for (const std::string& name : names) {
      if (rule_index(name) < finding_rules().size()) {
        options_.enable(name, entry.key == "on");
        continue;
      }
      std::vector<std::string> ids;
      for (const FindingRuleInfo& rule : finding_rules()) ids.emplace_back(rule.id);
      add(entry, "no finding has the id \"" + printable(name) + "\"", "ids of docs/usage.md",
          did_you_mean(name, ids).value_or(""));
    }
  }

  void read_parameter(const TableEntry& entry) {
    const std::size_t index = parameter_index(entry.key);
    if (index == finding_parameters().size()) {
      std::vector<std::string> keys{"off", "on"};
      for (const FindingParameter& p : finding_parameters()) keys.emplace_back(p.key);
      return add(entry, "unknown key", "", did_you_mean(entry.key, keys).value_or(""));
    }
    const FindingParameter& parameter = finding_parameters()[index];
    const OptionInfo info{.name = entry.key, .type = "number"};
    double value = 0;
    if (!options_detail::get(entry.value, table_, info, problems_, value)) return;
    if (!(value >= parameter.least && value <= parameter.most)) {
      return add(entry, "out of range",
                 format("%g .. ", parameter.least) +
                     (parameter.most >= kMuch ? "any" : format("%g", parameter.most)));
    }
    options_.set(entry.key, value);
  }

  const Table& table_;
  Problems& problems_;
  FindingOptions options_;
};

}  // namespace

const std::vector<FindingRuleInfo>& finding_rules() {
  static const std::vector<FindingRuleInfo> all{
      {"cpu_low"},
      {"cpu_unused_node"},
      {"cpu_serial"},
      {"cpu_oversubscribed"},
      {"cpu_imbalance"},
      {"idle_tail"},
      {"system_time"},
      {"mem_over"},
      {"mem_oom", true, true},
      {"mem_near_limit"},
      {"mem_swap"},
      {"mem_pressure"},
      {"gpu_unused"},
      {"gpu_low"},
      {"gpu_idle_run"},
      {"gpu_host_bound"},
      {"gpu_memory_low"},
      {"gpu_throttled"},
      {"time_over"},
      {"time_out", true, true},
      {"io_heavy"},
      {"short_job", true, true},
      {"fragmented", false},
  };
  return all;
}

const std::vector<FindingParameter>& finding_parameters() {
  static const std::vector<FindingParameter> all{
      {"min_elapsed_seconds", 300, 0, kMuch, "a job that ran for less is not judged"},
      {"min_samples", 2, 0, kMuch, "readings that each node must have"},
      {"min_covered_ratio", 0.8, 0, 1,
       "part of the time between whose first and last reading each node must have been seen"},
      {"cpu_low_notice_ratio", 0.80, 0, 1, "cpu_low: notice below"},
      {"cpu_low_warning_ratio", 0.65, 0, 1, "cpu_low: warning below"},
      {"cpu_serial_least_cpus", 0.85, 0, kMuch, "cpu_serial: more CPUs busy than this"},
      {"cpu_serial_most_cpus", 1.01, 0, kMuch, "cpu_serial: fewer CPUs busy than this"},
      {"cpu_oversubscribed_ratio", 0.2, 0, 1, "cpu_oversubscribed: part of the time above"},
      {"cpu_imbalance_ratio", 0.5, 0, 1, "cpu_imbalance: difference to the busiest node above"},
      {"cpu_imbalance_busy_ratio", 0.1, 0, 1,
       "cpu_imbalance: only if the busiest node used more than this"},
      {"idle_tail_seconds", 600, 0, kMuch, "idle_tail: at least so long"},
      {"idle_tail_ratio", 0.25, 0, 1, "idle_tail: and at least this part of the job"},
      {"system_time_ratio", 0.25, 0, 1, "system_time: part of the CPU time from"},
      {"system_time_seconds", 60, 0, kMuch, "system_time: and at least so much"},
      {"mem_over_notice_ratio", 0.70, 0, 1, "mem_over: notice below"},
      {"mem_over_warning_ratio", 0.35, 0, 1, "mem_over: warning below"},
      {"mem_over_default_bytes_per_cpu", 0, 0, kMuch,
       "mem_over: not for a job that has no more than this for each CPU (DefMemPerCPU)"},
      {"mem_over_whole_node_ratio", 0.85, 0, 10,
       "mem_over: not for a job that has this part of its nodes' CPUs"},
      {"mem_near_limit_ratio", 0.90, 0, 10, "mem_near_limit: from"},
      {"mem_swap_bytes", 64 * kMiB, 0, kMuch, "mem_swap: at least so much"},
      {"mem_swap_ratio", 0.01, 0, 1, "mem_swap: and at least this part of the memory"},
      {"mem_pressure_ratio", 0.05, 0, 1, "mem_pressure: part of the time above"},
      {"gpu_low_notice_ratio", 0.25, 0, 1, "gpu_low: notice below"},
      {"gpu_low_warning_ratio", 0.15, 0, 1, "gpu_low: warning below"},
      {"gpu_idle_run_ratio", 0.25, 0, 1, "gpu_idle_run: at least this part of the job"},
      {"gpu_idle_run_seconds", 600, 0, kMuch, "gpu_idle_run: and at least so long"},
      {"gpu_host_bound_gpu_ratio", 0.50, 0, 1, "gpu_host_bound: GPUs busy below"},
      {"gpu_host_bound_cpu_ratio", 0.90, 0, 1, "gpu_host_bound: and CPUs busy from"},
      {"gpu_memory_low_ratio", 0.10, 0, 1,
       "gpu_memory_low: the fullest GPU's peak below this part of its memory"},
      {"gpu_throttled_ratio", 0.10, 0, 1, "gpu_throttled: part of the time from"},
      {"time_over_seconds", 900, 0, kMuch, "time_over: not for a job that ran for less"},
      {"time_over_notice_ratio", 0.60, 0, 1, "time_over: notice below"},
      {"time_over_warning_ratio", 0.10, 0, 1, "time_over: warning below"},
      {"io_heavy_ratio", 0.10, 0, 1, "io_heavy: part of the time above"},
      {"io_heavy_bytes_per_second", 0, 0, kMuch,
       "io_heavy: or so many bytes a second; 0 = never for that"},
      {"short_job_seconds", 30, 0, kMuch, "short_job: below"},
      {"fragmented_cpu_ratio", 0.5, 0, 1, "fragmented: part of each node's CPUs below"},
      {"fragmented_mem_ratio", 0.8, 0, 1, "fragmented: and part of each node's memory below"},
  };
  return all;
}

FindingOptions::FindingOptions() {
  for (const FindingParameter& p : finding_parameters()) values_.push_back(p.value);
  for (const FindingRuleInfo& rule : finding_rules()) on_.push_back(rule.on);
}
double FindingOptions::get(std::string_view key) const { return values_.at(parameter_index(key)); }
bool FindingOptions::on(std::string_view id) const { return on_.at(rule_index(id)); }
void FindingOptions::set(std::string_view key, double value) {
  values_.at(parameter_index(key)) = value;
}
void FindingOptions::enable(std::string_view id, bool on) { on_.at(rule_index(id)) = on; }
std::string FindingOptions::help_url(std::string_view id) const {
  return help_url_.expand([id](std::string_view) { return std::string(id); });
}
void FindingOptions::set_help_url(TextTemplate url) { help_url_ = std::move(url); }

FindingOptions read_finding_options(const Table& table, Problems& problems) {
  return Reader(table, problems).read();
}

TextTemplate read_help_url(const Table& table, const std::string& url, Problems& problems) {
  constexpr const char* kKey = "help_url";
  constexpr const char* kAllowed =
      "\"\", or at most 512 characters such as \"https://hpc.example.org/usage/{finding}\"";
  constexpr std::size_t kMost = 512;  // with an id in it, still short enough for every sink's index
  constexpr std::array<std::string_view, 1> kFields{"finding"};
  const auto is_wrong = [](char c) {
    return c <= ' ' || c > '~' || c == '"' || c == '<' || c == '>';
  };
  if (url.empty()) return {};
  if (!url.starts_with("https://") && !url.starts_with("http://")) {
    problems.add(table, kKey, "not a URL that begins with http:// or https://", kAllowed);
  } else if (url.size() > kMost) {
    problems.add(table, kKey, "too long", kAllowed);
  } else if (std::ranges::any_of(url, is_wrong)) {
    problems.add(table, kKey, "a character that a URL cannot hold", kAllowed);
  } else if (auto made = TextTemplate::parse(url, kFields); !made) {
    problems.add(table, kKey, made.error().message(), kAllowed);
  } else {
    return *std::move(made);
  }
  return {};
}

}  // namespace scriptorium::usage

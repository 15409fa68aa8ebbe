#include "core/page/job_plots.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/base/time.h"
#include "core/page/plot.h"
#include "core/page/templates.h"
#include "core/query/run_figures.h"
#include "core/query/unchecked_json.h"
#include "core/query/usage_tables.h"

namespace scriptorium::page {
namespace {

using List = kainjow::mustache::list;
using Json = nlohmann::ordered_json;
using query::Figure;

// What a node used at one time.
struct Sample {
  std::string host;
  double time = 0, start = 0;  // in seconds; of the sample and of its life on the node
  std::uint64_t number = 0;    // from 1 in each life
  std::optional<double> cpu_ratio, memory_bytes, memory_limit_bytes, gpu_ratio;
};

// A job that is not bound to its CPUs may use more than it was given, but not without end.
std::optional<double> share_at(const Json& object, std::initializer_list<const char*> path) {
  constexpr double kMost = 1'000;
  const auto ratio = query::measured_at(object, path);
  return ratio && *ratio <= kMost ? ratio : std::nullopt;
}

// The mean of the GPUs that were read.
std::optional<double> gpu_ratio_of(const Json& usage) {
  double sum = 0;
  std::size_t count = 0;
  for (const Json& gpu : query::list_at(usage, {"gpus"})) {
    const auto ratio = share_at(gpu, {"utilization_ratio"});
    if (!ratio) continue;
    sum += *ratio;
    ++count;
  }
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

Sample sample_of(const Event& event) {
  const Json json = Json::parse(event.extra_json, nullptr, false);
  const Json& usage = query::value_at(json, {query::kUsage});
  const double time = static_cast<double>(event.time.nanoseconds) / static_cast<double>(kSecond);
  return {.host = event.host,
          .time = time,
          .start = time - query::measured_at(usage, {"elapsed_seconds"}).value_or(time),
          .number = static_cast<std::uint64_t>(query::measured_at(usage, {"seq"}).value_or(0)),
          .cpu_ratio = share_at(usage, {"cpu", "utilization_ratio"}),
          .memory_bytes = query::measured_at(usage, {"memory", "working_set_bytes"}),
          .memory_limit_bytes = query::measured_at(usage, {"memory", "limit_bytes"}),
          .gpu_ratio = gpu_ratio_of(usage)};
}

// Of the newest life, the earliest first. A life begins after all samples of the one before it; on
// another node its first step may begin much later than on the first one.
std::vector<Sample> newest_life(std::vector<Sample> samples) {
  constexpr double kSlack = 1;  // between the clock of the samples and that of elapsed_seconds
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.time < b.time; });
  double start = std::numeric_limits<double>::infinity();  // the earliest of those behind `first`
  for (std::size_t first = samples.size(); first > 0; --first) {
    if (first < samples.size() && start > samples[first - 1].time + kSlack) {
      samples.erase(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(first));
      break;
    }
    start = std::min(start, samples[first - 1].start);
  }
  return samples;
}

std::map<std::string, std::vector<Sample>> nodes_of(const Searchable::Record& record) {
  std::vector<Sample> samples;
  for (const auto& event : record.later) {
    if (event->kind == "usage.sample") samples.push_back(sample_of(*event));
  }
  std::map<std::string, std::vector<Sample>> nodes;
  for (Sample& sample : newest_life(std::move(samples))) {
    std::vector<Sample>& of_node = nodes[sample.host];
    if (of_node.empty() || of_node.back().time < sample.time) of_node.push_back(std::move(sample));
  }
  return nodes;
}

// Only if all nodes have the same.
std::optional<double> limit_of(const std::map<std::string, std::vector<Sample>>& nodes) {
  const auto limit = nodes.begin()->second.back().memory_limit_bytes;
  const bool is_one = std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return node.second.back().memory_limit_bytes == limit;
  });
  return is_one ? limit : std::nullopt;
}

void add_key(List& keys, const std::string& kind, const std::string& name) {
  Values key;
  key.set("class", kind);
  key.set("name", name);
  keys.push_back(std::move(key));
}

List keys_of(const PlotLines& lines, const std::map<std::string, std::vector<Sample>>& nodes,
             bool has_limit) {
  List keys;
  const auto line = [&] { return "line" + std::to_string(keys.size()); };
  if (lines.is_summary) {
    for (const char* name : {"least_of_nodes", "mean_of_nodes", "most_of_nodes"})
      add_key(keys, line(), words(name));
  } else if (nodes.size() > 1) {
    for (const auto& [host, samples] : nodes) add_key(keys, line(), printable(host));
  }
  if (has_limit) add_key(keys, "limit", words("memory_limit"));
  return keys;
}

// The times below the two ends of a plot; the first names its zone only if the clock was changed
// between them.
std::pair<std::string, std::string> ends_of(const PlotLines& lines) {
  const Timestamp begin{std::llround(lines.begin) * kSecond};
  const Timestamp end{std::llround(lines.end) * kSecond};
  const std::string zone = local_zone(end);
  const bool is_changed = local_zone(begin) != zone;
  return {local_text(begin) + (is_changed ? " " + local_zone(begin) : ""),
          local_text(end) + " " + zone};
}

struct Plotted {
  Figure figure;
  const char* title;
  const char* caption;
  Merge merge;
  std::optional<double> Sample::* value;
};
constexpr std::array kKinds{
    Plotted{Figure::kCpu, "cpu", "cpu_plot", Merge::kMean, &Sample::cpu_ratio},
    Plotted{Figure::kMemory, "memory", "memory_plot", Merge::kMost, &Sample::memory_bytes},
    Plotted{Figure::kGpu, "gpu", "gpu_plot", Merge::kMean, &Sample::gpu_ratio},
};

}  // namespace

List job_plots(const Searchable::Record& record) {
  List plots;
  if (record.job.runs > 0 || record.job.array_task_spec) return plots;
  const auto nodes = nodes_of(record);
  if (nodes.empty()) return plots;
  for (const Plotted& kind : kKinds) {
    std::vector<Readings> readings;
    for (const auto& [host, samples] : nodes) {
      Readings& of_node = readings.emplace_back();
      for (const Sample& sample : samples)
        of_node.push_back(
            {.time = sample.time, .value = sample.*kind.value, .number = sample.number});
    }
    const auto lines = plot_lines(readings, kind.merge);
    if (!lines) continue;
    const bool is_memory = kind.figure == Figure::kMemory;
    const auto limit = is_memory ? limit_of(nodes) : std::nullopt;
    const double top = std::max(lines->most, is_memory ? limit.value_or(0) : 1);
    const auto text = [&](double value) { return query::figure_text(kind.figure, value); };
    Values plot;
    const std::string title = words(kind.title);
    plot.set("caption", words(kind.caption));
    plot.set("top", text(top));
    plot.set("middle", text(top / 2));
    plot.set("bottom", text(0));
    const auto [begin, end] = ends_of(*lines);
    plot.set("begin", begin);
    plot.set("end", end);
    set_list(plot, "keys", keys_of(*lines, nodes, limit.has_value()));
    set_html(plot, plot_svg(words("plot_title", {title, text(lines->least), text(lines->most)}),
                            *lines, top, limit));
    plots.push_back(std::move(plot));
  }
  return plots;
}

}  // namespace scriptorium::page

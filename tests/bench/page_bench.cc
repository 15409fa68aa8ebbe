// Fills the catalog that page_bench.py asks for pages, and adds jobs to it meanwhile.
//
//   page_bench fill ROOT JOBS SAMPLE     jobs of the 90 days before now, as fast as the sink takes
//                                        them; some of them are listed in the file SAMPLE
//   page_bench ingest ROOT JOBS_A_SECOND SECONDS
//                                        further jobs as they come, on standard input's first line
//   page_bench open ROOT                 what a first start costs, such as a conversion; then full
//                                        segments are finished, as a site's were long ago
//
// Each prints a line of JSON.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backends/catalog/segments.h"
#include "backends/catalog/sink.h"
#include "backends/catalog/words.h"
#include "core/base/number.h"
#include "tests/bench/bench_fixture.h"
#include "tests/bench/job_model.h"
#include "tests/support/scripted_sink.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using Events = std::vector<std::shared_ptr<const Event>>;

constexpr std::size_t kUsers = 200;
constexpr std::size_t kAccounts = 20;
constexpr std::size_t kBatch = 200;
constexpr std::int64_t kDays = 90;
// The newest job that is filled in is so old, since the model's jobs end within two hours.
constexpr std::int64_t kNewest = 7'200 * kSecond;
constexpr std::size_t kListed = 20'000;
constexpr std::uint64_t kFirstLaterJob = 10'000'000;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---- what jobs used

// The model's use with what reports and findings are made of: other states, memory, GPUs, a time
// limit, modules' software as programs, and advice.
class UseModel {
 public:
  Event of(bench::JobModel& model, const Event& job) {
    Event event = model.usage_of(job);
    Json json = Json::parse(event.extra_json);
    Json& usage = json["usage"];
    set_state(json["job"]);
    const std::uint64_t cpus = usage["cpu"]["allocated"].get<std::uint64_t>();
    const auto elapsed = usage["elapsed_seconds"].get<std::uint64_t>();
    const double busy = usage["cpu"]["efficiency_ratio"].get<double>();
    const std::uint64_t nodes = cpus < 32 ? 1 : 1 + below(4);
    Json& request = usage["request"];
    request["nodes"] = nodes;
    request["time_limit_seconds"] = elapsed + 600 + 60 * below(600);
    const auto memory = request["memory_bytes"].get<std::uint64_t>();
    const double filled = static_cast<double>(5 + below(95)) / 100;
    usage["memory"] = {
        {"peak_bytes", static_cast<std::uint64_t>(static_cast<double>(memory) * filled)},
        {"limit_bytes", memory},
        {"efficiency_ratio", filled}};
    for (std::uint64_t i = 1; i < nodes; ++i)
      usage["nodes"].push_back({{"host", {{"name", "n" + std::to_string(below(500))}}}});
    if (job.job.partition == "gpu") set_gpus(usage);
    static constexpr std::array<const char*, 8> kPrograms{
        "gmx_mpi", "vasp_std", "python3", "lmp", "bwa", "simpleFoam", "samtools", "java"};
    usage["programs"][0]["name"] = kPrograms.at(below(kPrograms.size()));
    usage["quality"] = {{"status", "ok"}, {"nodes_reporting", nodes}, {"nodes_expected", nodes}};
    set_advice(usage, busy, filled, cpus, memory);
    event.extra_json = json.dump();
    return event;
  }

 private:
  std::uint64_t below(std::uint64_t most) { return random_() % most; }

  void set_state(Json& job) {
    if (job["state"] != "FAILED") return;
    static constexpr std::array<const char*, 5> kStates{"FAILED", "FAILED", "TIMEOUT",
                                                        "OUT_OF_MEMORY", "CANCELLED"};
    job["state"] = kStates.at(below(kStates.size()));
  }

  void set_gpus(Json& usage) {
    const std::uint64_t count = 1 + below(4);
    usage["request"]["gpus"] = count;
    usage["gpu"] = {{"count", count}, {"utilization_ratio", static_cast<double>(below(100)) / 100}};
  }

  static void set_advice(Json& usage, double busy, double filled, std::uint64_t cpus,
                         std::uint64_t memory) {
    Json findings = Json::array();
    const auto add = [&](const char* id, double value, const char* text) {
      findings.push_back({{"id", id},
                          {"severity", "warning"},
                          {"value", value},
                          {"unit", "ratio"},
                          {"scope", "job"},
                          {"text", text}});
    };
    Json lines = Json::array();
    if (busy < 0.2 && cpus > 1) {
      add("cpu_low", busy, "The job used few of its CPUs, and no other job could use the rest.");
      usage["suggest"]["cpus"] = cpus / 2;
      lines.push_back("#SBATCH --ntasks=" + std::to_string(cpus / 2));
    }
    if (filled < 0.2) {
      add("mem_over", filled, "The job used little of its memory. Ask for less.");
      usage["suggest"]["memory_bytes"] = memory / 2;
      lines.push_back("#SBATCH --mem=" + std::to_string(memory >> 21) + "M");
    }
    usage["findings"] = std::move(findings);
    if (!lines.empty()) usage["suggest"]["directives"] = std::move(lines);
  }

  std::mt19937_64 random_{7};
};

// ---- the sink

class Filler {
 public:
  Filler(const std::string& root, const bench::SitePlan& plan, std::uint64_t seed)
      : root_(root),
        sink_(config_of(root), PluginContext{"catalog", "lab", log_, system_clock()}),
        model_(seed, kUsers, 0, plan) {
    if (auto started = sink_.start(); !started) bench::fail(started.error().message());
  }

  // So many submissions, and what those used whose turn it is: `lag` jobs later.
  template <typename Use>
  void add(std::size_t jobs, std::size_t lag, Use use) {
    Events scripts;
    for (std::size_t i = 0; i < jobs; ++i) {
      scripts.push_back(std::make_shared<const Event>(model_.next()));
      use(*scripts.back());
      Event job = *scripts.back();
      job.files.clear();
      running_.push_back(std::move(job));
    }
    deliver(scripts);
    while (running_.size() > lag) end_jobs(std::min(kBatch, running_.size() - lag));
  }
  // What the sink does in small steps after its batches.
  void finish_segments() {
    while (has_unfinished()) sink_.deliver({});
  }
  void stop() { sink_.stop(Clock::now() + std::chrono::seconds(60)); }

  Json figures() {
    std::sort(batches_.begin(), batches_.end());
    const auto at = [&](double share) {
      const auto last = static_cast<double>(batches_.size() - 1);
      return 1e3 * batches_[static_cast<std::size_t>(share * last)];
    };
    return {{"events", events_},
            {"failed", failed_},
            {"batches", batches_.size()},
            {"batch_ms", {{"p50", at(0.5)}, {"p99", at(0.99)}, {"longest", at(1)}}},
            {"cpu_seconds", bench::cpu_seconds()}};
  }

 private:
  static catalog::CatalogConfig config_of(const std::string& root) {
    catalog::CatalogConfig config;
    config.root = root;
    return config;
  }

  bool has_unfinished() const {
    const auto db = catalog::open_catalog_reader(root_);
    if (!db) bench::fail(db.error().message());
    for (const catalog::SegmentInfo& info : catalog::list_segments(**db)) {
      if (info.state == catalog::SegmentState::kOpen) continue;
      const auto segment = catalog::open_segment_reader(root_, info.id);
      if (!segment) bench::fail(segment.error().message());
      if (!(*segment)->integer("SELECT 1 FROM meta WHERE key = 'finished'")) return true;
    }
    return false;
  }

  void end_jobs(std::size_t count) {
    Events ended;
    for (std::size_t i = 0; i < count; ++i) {
      ended.push_back(std::make_shared<const Event>(use_.of(model_, running_.front())));
      running_.pop_front();
    }
    deliver(ended);
  }

  void deliver(const Events& events) {
    test::Outbox outbox;
    std::vector<Delivery> batch = outbox.batch(events);
    const auto begin = Clock::now();
    sink_.deliver(std::move(batch));
    batches_.push_back(seconds_since(begin));
    events_ += events.size();
    for (const auto& event : events) {
      if (outbox.outcome(event->job.id) == Outcome::kAcknowledged) continue;
      if (failed_++ == 0)
        std::fprintf(stderr, "failed: %s\n", outbox.reason(event->job.id).c_str());
    }
  }

  const std::string root_;
  bench::WarningLogger log_;
  catalog::CatalogSink sink_;
  bench::JobModel model_;
  UseModel use_;
  std::deque<Event> running_;
  std::vector<double> batches_;  // seconds each
  std::size_t events_ = 0;
  std::size_t failed_ = 0;
};

// ---- commands

// Of each user the first and then every n-th job, with what can be asked of it.
class SampleList {
 public:
  SampleList(const std::string& file, std::size_t jobs)
      : out_(file), step_(std::max<std::size_t>(jobs / kListed, 1)) {}

  void add(const Event& event) {
    const std::string user = event.user.name.value_or("");
    if (seen_[user]++ % step_ != 0) return;
    std::vector<std::string> words = catalog::words_of_text(*event.file("script")->bytes);
    std::erase_if(words, [](const std::string& word) { return word.size() < 5; });
    const auto& modules = event.script->modules;
    out_ << Json{{"id", event.job.id},
                 {"at", format_rfc3339(event.time, TimePrecision::kNanoseconds)},
                 {"user", user},
                 {"uid", event.user.id.value_or("")},
                 {"account", event.job.account.value_or("")},
                 {"partition", event.job.partition.value_or("")},
                 {"name", event.job.name.value_or("")},
                 {"module", modules.empty() ? "" : modules.front()},
                 {"word", words.empty() ? "" : words[random_() % words.size()]},
                 {"other_word", words.empty() ? "" : words[random_() % words.size()]}}
                .dump()
         << '\n';
  }
  bool flush() { return static_cast<bool>(out_.flush()); }

 private:
  std::ofstream out_;
  const std::size_t step_;
  std::map<std::string, std::size_t> seen_;  // jobs of each user
  std::mt19937_64 random_{3};
};

int print(Json json, const Json& figures) {
  json.update(figures);
  std::printf("%s\n", json.dump().c_str());
  return figures.at("failed") == 0 ? 0 : 1;
}

int fill(const std::string& root, std::size_t jobs, const std::string& sample) {
  const std::int64_t newest = system_clock().now().nanoseconds - kNewest;
  const std::uint64_t gap_ms = kDays * 86'400'000 / jobs;
  SampleList list(sample, jobs);
  const auto begin = Clock::now();
  Filler filler(root,
                {.accounts = kAccounts,
                 .begins = newest - kDays * 86'400 * kSecond,
                 .most_gap_ms = std::max<std::uint64_t>(2 * gap_ms, 2) - 1},
                1);
  constexpr std::size_t kProgress = 100'000;
  for (std::size_t done = 0; done < jobs;) {
    const std::size_t count = std::min(kBatch, jobs - done);
    done += count;
    filler.add(count, done == jobs ? 0 : 2 * kBatch, [&](const Event& event) { list.add(event); });
    if (done % kProgress == 0)
      std::fprintf(stderr, "%zu jobs, %.0f s\n", done, seconds_since(begin));
  }
  filler.finish_segments();
  filler.stop();
  if (!list.flush()) bench::fail("cannot write " + sample);
  return print({{"jobs", jobs}, {"seconds", seconds_since(begin)}}, filler.figures());
}

int ingest(const std::string& root, std::size_t rate, std::size_t seconds) {
  using std::chrono::milliseconds;
  constexpr std::size_t kBatchesASecond = 5;
  const std::size_t batch = std::max<std::size_t>(rate / kBatchesASecond, 1);
  Filler filler(
      root,
      {.accounts = kAccounts,
       .begins = system_clock().now().nanoseconds - kNewest,
       .most_gap_ms = std::max<std::uint64_t>(2'000 / std::max<std::size_t>(rate, 1), 2) - 1,
       .jobs_before = kFirstLaterJob},
      2);
  std::string line;
  std::getline(std::cin, line);
  const auto begin = Clock::now();
  const std::size_t batches = rate * seconds / batch;
  double most_late = 0;
  for (std::size_t i = 0; i < batches; ++i) {
    const auto due = begin + milliseconds(1'000) * i * batch / rate;
    std::this_thread::sleep_until(due);
    most_late = std::max(most_late, seconds_since(due));
    filler.add(batch, 4 * batch, [](const Event&) {});
  }
  const double took = std::max(seconds_since(begin), static_cast<double>(seconds));
  Json figures = filler.figures();  // before what stop() commits
  filler.stop();
  return print({{"jobs", batches * batch},
                {"jobs_a_second", static_cast<double>(batches * batch) / took},
                {"most_late_ms", 1e3 * most_late}},
               figures);
}

int open(const std::string& root) {
  const auto begin = Clock::now();
  Filler filler(root, {}, 1);
  const double seconds = seconds_since(begin);
  filler.finish_segments();
  filler.stop();
  std::printf("%s\n", Json{{"seconds", seconds}}.dump().c_str());
  return 0;
}

std::size_t number(const char* text) {
  const auto value = parse_number<std::size_t>(text);
  if (!value || *value == 0) bench::fail(std::string(text) + " is no number of 1 or more");
  return *value;
}

}  // namespace
}  // namespace scriptorium

int main(int argc, char** argv) {
  using namespace scriptorium;
  const std::string_view command = argc > 2 ? argv[1] : "";
  if (command == "fill" && argc == 5) return fill(argv[2], number(argv[3]), argv[4]);
  if (command == "ingest" && argc == 5) return ingest(argv[2], number(argv[3]), number(argv[4]));
  if (command == "open" && argc == 3) return open(argv[2]);
  std::fprintf(stderr,
               "usage: page_bench fill ROOT JOBS SAMPLE | ingest ROOT JOBS_A_SECOND SECONDS | "
               "open ROOT\n");
  return 64;
}

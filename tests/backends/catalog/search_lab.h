#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/catalog/ingest.h"
#include "backends/catalog/lock.h"
#include "backends/catalog/search.h"
#include "backends/catalog/segments.h"
#include "backends/catalog/store.h"
#include "core/api/kit/search/query_matcher.h"
#include "core/api/searchable.h"
#include "tests/support/event_factory.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::test {

// A small catalog on disk, with everything that a search can meet: several segments, sealed and
// pending contents, jobs without a script, repeated scripts, later events, owners that became
// known. Beside it the same jobs in memory, for the reference.
class SearchLab {
 public:
  struct Job {
    JobRow row;
    std::int64_t segment = 0;
    std::int64_t id = 0;
    std::string script;
    std::string environment;
  };

  explicit SearchLab(std::int64_t segment_jobs = 120, catalog::SearchLimits limits = {}) {
    config_.root = directory_.path() + "/catalog";
    config_.segment_jobs = segment_jobs;
    store_ = std::make_unique<catalog::Store>(config_, "catalog", log_, clock_);
    const auto started = store_->start();
    if (!started) problem_ = started.error().message();
    search_ = catalog::make_search(config_.root, clock_, limits);
  }

  Searchable& search() { return *search_; }
  catalog::Store& store() { return *store_; }
  const std::string& root() const { return config_.root; }
  FakeClock& clock() { return clock_; }
  const std::string& problem() const { return problem_; }

  void put(const std::vector<Event>& events) {
    std::vector<const Event*> list;
    for (const Event& event : events) {
      list.push_back(&event);
      for (const EventFile& file : event.files) {
        if (file.bytes != nullptr) texts_[{event.job.id, file.name}] = *file.bytes;
      }
    }
    for (const catalog::Stored& stored : store_->put(list)) {
      if (stored.error) problem_ = stored.error->message();
    }
  }

  // Seals whatever is pending in the newest segment, so that small blocks come about.
  void seal() {
    const auto lock = catalog::WriterLock::take(config_.root);
    auto list = segments();
    if (!lock || list.empty()) return;
    auto writer = catalog::SegmentWriter::open(config_.root, list.front().id, 1 << 20);
    if (!writer) {
      problem_ = writer.error().message();
      return;
    }
    (*writer)->begin();
    while ((*writer)->seal_all()) {
    }
    if (!(*writer)->commit()) problem_ = "the seal's commit failed";
  }

  // Every segment but the newest.
  void finish() {
    const auto is_finished = [&](const catalog::SegmentInfo& info) {
      auto db = catalog::open_segment_reader(config_.root, info.id);
      return db && (*db)->integer("SELECT 1 FROM meta WHERE key = 'finished'");
    };
    const auto list = segments();
    for (int step = 0; step < 10'000 && problem_.empty(); ++step) {
      if (std::all_of(list.begin() + 1, list.end(), is_finished)) return;
      if (const auto tidied = store_->tidy(); !tidied) problem_ = tidied.error().message();
    }
    if (problem_.empty()) problem_ = "the segments are never finished";
  }

  std::vector<catalog::SegmentInfo> segments() {
    auto db = catalog::open_catalog_reader(config_.root);
    if (!db) return {};
    return catalog::list_segments(**db);
  }

  // All jobs as they are stored, the newest first.
  std::vector<Job> jobs() {
    std::vector<Job> jobs;
    for (const catalog::SegmentInfo& info : segments()) {
      auto db = catalog::open_segment_reader(config_.root, info.id);
      if (!db) {
        problem_ = db.error().message();
        continue;
      }
      catalog::RowReader rows(**db);
      const auto read = rows.read_range(0, std::int64_t{1} << 40, [&](catalog::JobEntry&& entry) {
        Job& job = jobs.emplace_back();
        job.segment = info.id;
        job.id = entry.id;
        if (entry.script) job.script = texts_[{entry.row.id, "script"}];
        if (entry.environment) job.environment = texts_[{entry.row.id, "environment"}];
        job.row = std::move(entry.row);
        return true;
      });
      if (!read) problem_ = read.error().message();
    }
    std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
      return std::tuple(a.row.time, a.segment, a.id) > std::tuple(b.row.time, b.segment, b.id);
    });
    return jobs;
  }

 private:
  TempDir directory_;
  FakeClock clock_;
  RecordingLogger log_;
  catalog::CatalogConfig config_;
  std::unique_ptr<catalog::Store> store_;
  std::unique_ptr<Searchable> search_;
  std::map<std::pair<std::string, std::string>, std::string> texts_;  // by job id and file
  std::string problem_;
};

// The meaning of a query, job by job.
inline bool reference_matches(const QueryMatcher& matcher, const SearchLab::Job& job) {
  return matcher.matches(
      job.row, JobTexts{[&](JobPart part) {
        return std::string_view(part == JobPart::kScript ? job.script : job.environment);
      }});
}

// Makes random jobs, and later events of them.
class JobMaker {
 public:
  explicit JobMaker(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return random_() % end; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <typename List>
  const typename List::value_type& any(const List& list) {
    return *std::next(list.begin(), static_cast<std::ptrdiff_t>(below(list.size())));
  }

  Event job(std::int64_t number) {
    const std::string script = !scripts_.empty() && one_in(3) ? any(scripts_) : new_script();
    const std::string user = any(kUsers);
    std::vector<std::string> variables{"HOME=/home/" + user, "USER=" + user,
                                       "OMP_NUM_THREADS=" + std::to_string(1 + below(8)),
                                       "LOADEDMODULES=" + any(kModules) + ":" + any(kModules),
                                       "NOTE=" + any(kWords) + " " + any(kWords)};
    if (one_in(4)) variables.push_back("OMP_NUM_THREADS=" + std::to_string(below(3)));
    if (one_in(8)) variables.clear();
    Event event = make_event_value(
        one_in(9) ? std::to_string(number) + ".server" : std::to_string(number), script, variables);
    if (one_in(12)) {
      event.files.clear();
      event.environment_format = EnvironmentFormat::kNone;
      event.script.reset();
    }
    event.time = time_of(number);
    event.cluster = one_in(4) ? "Wide" : "lab";
    event.job.name = any(kWords) + "_" + std::to_string(below(30));
    if (one_in(10)) event.job.name.reset();
    event.job.account = any(kAccounts);
    if (one_in(7)) event.job.account.reset();
    event.job.partition = one_in(2) ? "batch" : "GPU_a";
    if (one_in(2)) event.job.qos = one_in(2) ? "normal" : "high*prio";
    event.job.work_dir = "/scratch/" + user + "/" + any(kWords);
    event.user.name = user;
    event.user.id = one_in(6) ? kUids.back() : std::to_string(1000 + user.size());
    if (one_in(8)) event.user.id.reset();
    event.user.verified = !one_in(5);
    if (one_in(15)) event.user.name.reset();
    event.complete = !one_in(6);
    if (one_in(6)) event.job.array = JobArray{std::to_string(number - number % 10), "1", "1-9"};
    if (event.script) {
      event.script->directives = {"--time=00:" + std::to_string(10 + below(50)) + ":00",
                                  "--gres=gpu:" + std::to_string(1 + below(4)), "--exclusive"};
      event.script->modules = {any(kModules)};
      if (one_in(3)) event.script->software = {any(kSoftware)};
      if (one_in(9)) event.script->software.push_back({"spack", "hdf5 +mpi"});
    }
    if (one_in(9)) event.redactions.push_back({"url-userinfo", "script", 1, false, {}, {}});
    event.id =
        event_id(std::vector<std::string_view>{"made", event.job.id, std::to_string(number)});
    return event;
  }

  Event later(const Event& job) {
    Event event;
    event.kind = "usage.job";
    event.time = job.time;
    event.captured_at = job.time;
    event.capture = "accounting";
    event.cluster = job.cluster;
    event.scheduler = job.scheduler;
    event.host = job.host;
    event.job = job.job;
    event.user = job.user;
    const std::int64_t elapsed = static_cast<std::int64_t>(60 + below(7000));
    const Timestamp began{job.time.nanoseconds + 30 * kSecond};
    const Timestamp ended{began.nanoseconds + elapsed * kSecond};
    event.extra_json =
        R"({"job":{"state":")" + any(kStates) + R"(","exit_code":")" + std::to_string(below(3)) +
        ":" + std::to_string(one_in(4) ? 9 : 0) + R"(","started_at":")" +
        format_rfc3339(began, TimePrecision::kSeconds) + R"(","ended_at":")" +
        format_rfc3339(ended, TimePrecision::kSeconds) + R"("},"usage":{"elapsed_seconds":)" +
        std::to_string(elapsed) + R"(,"request":{"cpus":)" + std::to_string(1 + below(64)) +
        R"(,"memory_bytes":)" + std::to_string((1 + below(64)) << 30) +
        R"(},"memory":{"peak_bytes":)" + std::to_string((1 + below(64)) << 29) +
        R"(},"cpu":{"efficiency_ratio":0.)" + std::to_string(below(100)) + R"(},"gpu":{"count":)" +
        std::to_string(below(4)) + R"(},"nodes":[{"host":"node)" + std::to_string(below(12)) +
        R"("}],"findings":[)" + (one_in(3) ? R"({"id":"cpu_low"})" : "") + "]}}";
    event.id =
        event_id(std::vector<std::string_view>{job.id, "usage.job", std::to_string(random_())});
    return event;
  }

  // The same capture, once the scheduler has named its owner.
  Event owned(Event job) {
    job.user.name = any(kUsers);
    job.user.verified = true;
    job.replaces = job.id;
    job.id = owned_event_id(job.id, job.user.id.value_or(""));
    for (EventFile& file : job.files) file.bytes.reset();
    return job;
  }

  static inline const std::vector<std::string> kUsers{"alice", "bob", "carol", "Dave", "eve_2"};
  static inline const std::vector<std::string> kUids{"1003", "1005", "999"};
  static inline const std::vector<std::string> kAccounts{"chem", "physics", "Bio", "x*y"};
  static inline const std::vector<std::string> kStates{"COMPLETED", "FAILED", "TIMEOUT"};
  static inline const std::vector<Software> kSoftware{
      {"conda", "torch"}, {"conda", "base"}, {"apptainer", "docker://torch"}};
  static inline const std::vector<std::string> kModules{"GROMACS/2023.1", "GROMACS/2022.5",
                                                        "gcc/12", "Python/3.11.3", "plain"};
  static inline const std::vector<std::string> kWords{
      "gromacs", "gmx_mpi",      "run",    "echo", "mpirun", "np",    "16",   "python", "train",
      "data",    "h\xc3\xa9llo", "x",      "A",    "Data",   "alpha", "beta", "gamma",  "mem",
      "16G",     "done",         "export", "PATH", "sort",   "0",     "1",    "input"};

 private:
  std::string new_script() {
    std::string script = "#!/bin/bash\n";
    static const std::vector<std::string> kBetween{" ", " ", "  ", "\t", "_", "/",  "=", "--",
                                                   ".", "-", "\n", "\n", "$", "\"", "*", "\xff"};
    const std::size_t words = one_in(20) ? 0 : 5 + below(60);
    const bool is_plain = !one_in(30);
    for (std::size_t i = 0; i < words; ++i) {
      const std::string& between = any(kBetween);
      script += any(kWords) + (is_plain && between == "\xff" ? "+" : between);
    }
    if (one_in(3)) script += "\n#SBATCH --mem=" + std::to_string(below(64)) + "G\n";
    if (one_in(5)) script += "rare" + std::to_string(below(400)) + "\n";
    if (one_in(20)) script += std::string(60 + below(10), 'w') + "\n";
    if (one_in(20)) script += std::string("zero") + '\0' + "byte\n";
    if (one_in(25)) script.clear();
    scripts_.push_back(script);
    return script;
  }
  Timestamp time_of(std::int64_t number) {
    // Mostly ascending, with equal times and jobs that arrive late.
    std::int64_t seconds = kJobTime.nanoseconds / kSecond + number * 1800;
    if (one_in(6)) seconds -= static_cast<std::int64_t>(below(90)) * 86'400;
    if (one_in(5)) seconds -= seconds % 86'400;
    return {seconds * kSecond};
  }

  std::mt19937_64 random_;
  std::vector<std::string> scripts_;
};

// Fills a lab with that many jobs.
inline void fill(SearchLab& lab, JobMaker& make, std::int64_t jobs) {
  std::vector<Event> batch;
  std::vector<Event> earlier;
  for (std::int64_t number = 1; number <= jobs; ++number) {
    batch.push_back(make.job(number));
    earlier.push_back(batch.back());
    if (batch.size() < 10 && number < jobs) continue;
    lab.put(batch);
    batch.clear();
    for (int i = 0; i < 6; ++i) batch.push_back(make.later(make.any(earlier)));
    lab.put(batch);
    batch.clear();
    if (make.one_in(3)) {
      const Event& job = make.any(earlier);
      if (!job.user.verified && !job.replaces) lab.put({make.owned(job)});
    }
    if (make.one_in(4)) lab.seal();
  }
}

}  // namespace scriptorium::test

// Ingest into a catalog: how fast, how large, how long the longest batch, and what a tree of files
// takes for the same jobs.
//
//   catalog_bench [--jobs 33000] [--batch 200] [--usage PERCENT] [--samples N] [--tree 2000]
//   [--root DIR]
//
// --samples N: so many readings of each job, as they come while all of them run.

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/catalog/maintenance.h"
#include "backends/catalog/move.h"
#include "backends/catalog/segments.h"
#include "backends/catalog/sink.h"
#include "backends/catalog/store.h"
#include "backends/catalog/store_families.h"
#include "backends/file/sink.h"
#include "tests/bench/job_model.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::size_t jobs = 33'000;
  std::size_t batch = 200;
  std::size_t usage_percent = 0;
  std::size_t samples = 0;
  std::size_t tree_jobs = 2'000;
  std::string root;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::uint64_t resident_bytes() {
  std::uint64_t pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    unsigned long long all = 0;
    unsigned long long resident = 0;
    if (std::fscanf(file, "%llu %llu", &all, &resident) == 2) pages = resident;
    std::fclose(file);
  }
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

struct Measured {
  double wall = 0;
  double cpu = 0;
  std::vector<double> batches;  // seconds each
  std::size_t events = 0;
  std::size_t failed = 0;
};

void deliver(Sink& sink, std::vector<std::shared_ptr<const Event>> events, Measured& into) {
  test::Outbox outbox;
  std::vector<Delivery> batch = outbox.batch(events);
  const double wall = wall_seconds();
  const double cpu = cpu_seconds();
  sink.deliver(std::move(batch));
  into.cpu += cpu_seconds() - cpu;
  into.batches.push_back(wall_seconds() - wall);
  into.wall += into.batches.back();
  into.events += events.size();
  for (const auto& event : events) {
    if (outbox.outcome(event->job.id) == Outcome::kAcknowledged) continue;
    if (into.failed++ == 0) std::printf("  failed: %s\n", outbox.reason(event->job.id).c_str());
  }
}

void print(const char* what, Measured measured, std::size_t rss) {
  std::sort(measured.batches.begin(), measured.batches.end());
  const auto at = [&](double share) {
    const auto last = static_cast<double>(measured.batches.size() - 1);
    return 1e3 * measured.batches[static_cast<std::size_t>(share * last)];
  };
  const auto events = static_cast<double>(measured.events);
  std::printf(
      "%s: %zu events, %.0f events/s, %.0f us CPU an event, batch ms p50 %.0f p99 %.0f max "
      "%.0f, RSS grew to %zu MiB, %zu failed\n",
      what, measured.events, events / measured.wall, 1e6 * measured.cpu / events, at(0.5), at(0.99),
      at(1), rss >> 20, measured.failed);
}

// Room on the disk of a tree with script, environment and metadata: whole blocks, and 256 bytes for
// each inode. Without its directories, of which a sample has more for each job than a site.
double tree_bytes_per_job(std::size_t jobs) {
  test::TempDir directory;
  test::RecordingLogger log;
  const PluginContext context{"archive", "lab", log, system_clock()};
  file::FileConfig config;
  config.root = directory.path_to("tree");
  config.acl = file::AclMode::kNone;
  config.kinds.assign(file::kFileKinds.begin(), file::kFileKinds.end());
  auto sink = file::FileSink::create(config, context);
  if (!sink || !(*sink)->start()) return 0;
  bench::JobModel model;
  Measured measured;
  for (std::size_t done = 0; done < jobs; done += 200) {
    std::vector<std::shared_ptr<const Event>> events;
    for (std::size_t i = 0; i < 200; ++i)
      events.push_back(std::make_shared<const Event>(model.next()));
    deliver(**sink, std::move(events), measured);
  }
  double files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(config.root)) {
    if (entry.is_regular_file())
      files += static_cast<double>((entry.file_size() + 4095) / 4096 * 4096 + 256);
  }
  return files / static_cast<double>(measured.events);
}

// Pages of each table and index, of all segments.
void print_parts(const std::string& root, std::size_t jobs, double tree) {
  auto catalog = catalog::open_catalog_reader(root);
  if (!catalog) return;
  std::vector<std::pair<std::string, double>> parts;
  double all = 0;
  for (const auto& info : catalog::list_segments(**catalog)) {
    auto segment = catalog::open_segment_reader(root, info.id);
    if (!segment) continue;
    sqlite::Statement select(**segment,
                             "SELECT name, sum(pgsize) FROM dbstat WHERE aggregate = FALSE "
                             "GROUP BY name");
    while (select.step()) {
      const std::string name(select.text(0));
      const auto bytes = static_cast<double>(select.integer(1));
      auto found = std::find_if(parts.begin(), parts.end(),
                                [&](const auto& part) { return part.first == name; });
      if (found == parts.end()) found = parts.insert(parts.end(), {name, 0});
      found->second += bytes;
      all += bytes;
    }
    (*segment)->take_error();
    const double free = static_cast<double>((*segment)->number("PRAGMA freelist_count")) * 4096;
    parts.emplace_back("(free pages)", free);
    all += free;
    sqlite::Statement kinds(**segment,
                            "SELECT kind, sum(length(data)), sum(raw), count(*) FROM blocks GROUP "
                            "BY kind");
    while (kinds.step()) {
      std::printf("  blocks of kind %lld: %.1f B a job packed, %.1f raw, %lld blocks\n",
                  static_cast<long long>(kinds.integer(0)),
                  static_cast<double>(kinds.integer(1)) / static_cast<double>(jobs),
                  static_cast<double>(kinds.integer(2)) / static_cast<double>(jobs),
                  static_cast<long long>(kinds.integer(3)));
    }
  }
  const double families = static_cast<double>(fs::file_size(catalog::catalog_file(root)));
  parts.emplace_back("catalog.db", families);
  all += families;
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [name, bytes] : parts)
    std::printf("  %-24s %8.1f B a job\n", name.c_str(), bytes / static_cast<double>(jobs));
  std::printf("  %-24s %8.1f B a job; tree %.0f B a job; ratio %.4f\n", "sum",
              all / static_cast<double>(jobs), tree, all / static_cast<double>(jobs) / tree);
}

// What it costs to say of which family a job is, at an owner with very many.
void print_families() {
  constexpr int kJobs = 100'000;
  constexpr int kMeasured = 10'000;
  test::TempDir directory;
  const std::string root = directory.path_to("catalog");
  if (!catalog::make_root(root, std::nullopt)) return;
  auto db = catalog::open_catalog_writer(root);
  if (!db) return;
  catalog::Families families(**db);
  bench::JobModel model(1, 1);
  double cpu = 0;
  std::uint64_t last = 0;
  for (int i = 0; i < kJobs; ++i) {
    const Event event = model.next();
    const double before = cpu_seconds();
    last = std::max(last,
                    families.family_of("1001", event.job.name.value_or(""), *event.file("script")));
    if (i >= kJobs - kMeasured) cpu += cpu_seconds() - before;
    if (i % 200 == 199) (*db)->execute("COMMIT");
  }
  std::printf("families: %.1f us CPU a job at an owner with %d jobs and %llu families\n",
              1e6 * cpu / kMeasured, kJobs, static_cast<unsigned long long>(last));
}

// What check and rewriting cost, beside a plain read of the same files.
void print_maintenance(const catalog::CatalogConfig& config, std::size_t jobs) {
  const auto measure = [&](const char* what, auto work) {
    const double cpu = cpu_seconds();
    const double wall = wall_seconds();
    const std::string result = work();
    const auto each = static_cast<double>(jobs);
    std::printf("%s: %.1f us CPU, %.1f us a job; %.1f MB resident; %s\n", what,
                1e6 * (cpu_seconds() - cpu) / each, 1e6 * (wall_seconds() - wall) / each,
                static_cast<double>(resident_bytes()) / 1e6, result.c_str());
  };
  measure("plain read", [&] {
    std::size_t bytes = 0;
    for (const auto& file : fs::recursive_directory_iterator(config.root)) {
      std::ifstream in(file.path(), std::ios::binary);
      char buffer[1 << 16];
      while (in.read(buffer, sizeof buffer) || in.gcount() > 0) bytes += in.gcount();
    }
    return std::to_string(bytes) + " bytes";
  });
  measure("check", [&] {
    const auto report = catalog::Maintenance(config, system_clock()).check({});
    return report ? std::to_string(report->findings.size()) + " findings" : "failed";
  });
  measure("rewrite", [&] {
    auto catalog = catalog::open_catalog_reader(config.root);
    std::uint64_t events = 0;
    for (const auto& info : catalog::list_segments(**catalog)) {
      const auto moved = catalog::move_segment(config, system_clock(), info.id, {});
      if (!moved || !moved->lost.empty()) return std::string("failed");
      events += moved->events;
    }
    return std::to_string(events) + " events";
  });
}

// What the segments take once they are closed and finished.
void print_finished(catalog::CatalogConfig config, std::size_t jobs) {
  config.segment_jobs = 1;
  test::RecordingLogger log;
  catalog::Store store(config, "catalog", log, system_clock());
  bench::JobModel model(2, 2);
  const Event event = model.next();
  const double cpu = cpu_seconds();
  if (!store.start() || store.put({&event})[0].error) return;
  auto catalog = catalog::open_catalog_reader(config.root);
  std::uint64_t bytes = 0;
  std::uint64_t free = 0;
  std::size_t steps = 0;
  for (const auto& info : catalog::list_segments(**catalog)) {
    auto db = catalog::open_segment_reader(config.root, info.id);
    if (info.state == catalog::SegmentState::kSealed) {
      for (; !(*db)->integer("SELECT 1 FROM meta WHERE key = 'finished'") && store.tidy();
           ++steps) {
      }
    }
    bytes += (*db)->number("PRAGMA page_count") * (*db)->number("PRAGMA page_size");
    free += (*db)->number("PRAGMA freelist_count") * (*db)->number("PRAGMA page_size");
  }
  const auto each = static_cast<double>(jobs);
  std::printf("finished: %.1f B a job, %.1f of them free; %zu steps, %.1f us CPU a job\n",
              static_cast<double>(bytes) / each, static_cast<double>(free) / each, steps,
              1e6 * (cpu_seconds() - cpu) / each);
}

int run(const Options& options) {
  test::TempDir directory;
  test::RecordingLogger log;
  const PluginContext context{"catalog", "lab", log, system_clock()};
  catalog::CatalogConfig config;
  config.root = options.root.empty() ? directory.path_to("catalog") : options.root;
  catalog::CatalogSink sink(config, context);
  if (auto started = sink.start(); !started) {
    std::printf("%s\n", started.error().message().c_str());
    return 1;
  }
  bench::JobModel model;
  Measured scripts;
  Measured usage;
  std::uint64_t most_resident = 0;
  std::vector<Event> for_usage;
  std::vector<Event> running;
  for (std::size_t done = 0; done < options.jobs;) {
    std::vector<std::shared_ptr<const Event>> events;
    for (; events.size() < options.batch && done < options.jobs; ++done) {
      events.push_back(std::make_shared<const Event>(model.next()));
      Event job = *events.back();
      job.files.clear();
      if (options.samples > 0) running.push_back(job);
      if (done % 100 < options.usage_percent) for_usage.push_back(std::move(job));
    }
    deliver(sink, std::move(events), scripts);
    if (for_usage.size() >= options.batch) {
      std::vector<std::shared_ptr<const Event>> later;
      for (const Event& job : for_usage)
        later.push_back(std::make_shared<const Event>(model.usage_of(job)));
      for_usage.clear();
      deliver(sink, std::move(later), usage);
    }
    most_resident = std::max(most_resident, resident_bytes());
    if (done % 100'000 == 0) {
      print("so far", scripts, most_resident);
      std::fflush(stdout);
    }
  }
  Measured samples;
  for (std::size_t reading = 1; reading <= options.samples; ++reading) {
    std::vector<std::shared_ptr<const Event>> events;
    for (const Event& job : running) {
      events.push_back(std::make_shared<const Event>(model.sample_of(job, reading)));
      if (events.size() == options.batch || &job == &running.back())
        deliver(sink, std::exchange(events, {}), samples);
    }
  }
  std::printf("%s\n", sink.status_json().c_str());
  sink.stop(std::chrono::steady_clock::now() + std::chrono::seconds(60));
  print("submissions", scripts, most_resident);
  if (usage.events > 0) print("usage", usage, most_resident);
  if (samples.events > 0) print("samples", samples, resident_bytes());
  for (const auto& message : log.messages()) std::printf("%s\n", message.text().c_str());
  print_families();
  print_parts(config.root, options.jobs, tree_bytes_per_job(options.tree_jobs));
  print_finished(config, options.jobs);
  std::fflush(stdout);
  print_maintenance(config, options.jobs);
  return scripts.failed + usage.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace scriptorium

int main(int argc, char** argv) {
  scriptorium::Options options;
  for (int i = 1; i < argc; ++i) {
    const auto number = [&] { return std::strtoull(i + 1 < argc ? argv[++i] : "0", nullptr, 10); };
    if (std::strcmp(argv[i], "--jobs") == 0) {
      options.jobs = number();
    } else if (std::strcmp(argv[i], "--batch") == 0) {
      options.batch = number();
    } else if (std::strcmp(argv[i], "--usage") == 0) {
      options.usage_percent = number();
    } else if (std::strcmp(argv[i], "--samples") == 0) {
      options.samples = number();
    } else if (std::strcmp(argv[i], "--tree") == 0) {
      options.tree_jobs = number();
    } else if (std::strcmp(argv[i], "--root") == 0 && i + 1 < argc) {
      options.root = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: catalog_bench [--jobs N] [--batch N] [--usage PERCENT] "
                   "[--samples N] [--tree N] [--root DIR]\n");
      return 64;
    }
  }
  return scriptorium::run(options);
}

// What one event costs in the journal: append, settle, prune, with a 2 KB script and a 4 KB
// environment of its own.
//   journal_bench [DIRECTORY [EVENTS]]
// Prints CPU time per event (all threads), bytes on disk per waiting event, and memory with all of
// them waiting.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "core/journal/journal.h"
#include "tests/bench/bench_fixture.h"

namespace {

using namespace scriptorium;
using bench::cpu_seconds;

long resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') bench::fail("usage: journal_bench [DIRECTORY [EVENTS]]");
  const bench::TemporaryDirectory own;
  const std::string directory = argc > 1 ? argv[1] : own.path();
  const int events = argc > 2 ? std::atoi(argv[2]) : 50'000;
  constexpr int kGroup = 1000;
  bench::WarningLogger log;
  auto opened = Journal::open({.directory = directory, .max_bytes = std::uint64_t{64} << 30}, log,
                              system_clock());
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message().c_str());
    return 1;
  }
  Journal& journal = **opened;
  const auto sink = journal.register_sink("bench", {"job.script"});
  const auto far = [] { return std::chrono::steady_clock::now() + std::chrono::minutes(10); };
  std::stop_source never;
  const auto append_group = [&](int from) {
    // Making the events is not what is measured.
    std::vector<std::shared_ptr<const Event>> jobs;
    for (int i = 0; i < kGroup; ++i)
      jobs.push_back(bench::make_job(from + i, 2000, 4000,
                                     {1795224382'364'000'000 + (from + i) * 1'000'000LL}));
    const double before = cpu_seconds();
    for (auto& job : jobs) {
      const std::string entry =
          "hash." + job->job.id.substr(job->job.id.size() - 1) + "/job." + job->job.id;
      journal.append({.source = "slurm",
                      .event = job,
                      .mark = CaptureMark{.entry = entry, .size = 1, .event_id = job->id}},
                     never.get_token());
    }
    journal.flush(far());
    return cpu_seconds() - before;
  };
  std::uint64_t after = 0;
  const auto settle_group = [&] {
    const double before = cpu_seconds();
    for (int left = kGroup; left > 0;) {
      auto items = journal.read(*sink, after, 256, 8U << 20);
      if (!items || items->empty()) break;
      std::vector<Journal::Settle> settlements;
      for (const auto& item : *items)
        settlements.push_back({.sequence = item.sequence, .outcome = Outcome::kAcknowledged});
      after = items->back().sequence;
      left -= static_cast<int>(items->size());
      journal.settle(*sink, std::move(settlements), after);
    }
    journal.flush(far());
    return cpu_seconds() - before;
  };

  double append = 0, settle = 0;
  for (int i = 0; i < events; i += kGroup) {
    append += append_group(i);
    settle += settle_group();
  }
  std::printf(
      "a sink that keeps up:   append %.1f us, read + settle + prune %.1f us CPU an event\n",
      append / events * 1e6, settle / events * 1e6);

  append = settle = 0;
  const std::uint64_t empty = journal.usage().bytes;
  for (int i = 0; i < events; i += kGroup) append += append_group(events + i);
  const Journal::Usage usage = journal.usage();
  std::printf(
      "all waiting:            append %.1f us CPU, %.0f bytes on disk an event, %ld KB resident "
      "with %llu waiting\n",
      append / events * 1e6, static_cast<double>(usage.bytes - empty) / events,
      resident_kilobytes(), static_cast<unsigned long long>(usage.sinks[0].waiting));
  for (int i = 0; i < events; i += kGroup) settle += settle_group();
  std::printf("draining from disk:     read + settle + prune %.1f us CPU an event; %llu left\n",
              settle / events * 1e6, static_cast<unsigned long long>(journal.usage().events));
  opened = Error{ErrorKind::kVanished, ""};
  return 0;
}

// What one event costs in the journal: append, settle, prune, with a 2 KB script and a 4 KB environment of its own.
//   journal_bench [DIRECTORY [EVENTS]]
// Prints CPU time per event (all threads), bytes on disk per waiting event, and memory with all of them waiting.
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>

#include "core/base/sha256.h"
#include "core/journal/journal.h"

namespace {

using namespace scriptorium;

class SilentLogger : public Logger {
 public:
  void log(LogLevel level, std::string_view id, std::string_view, const Fields&) noexcept override {
    if (level >= LogLevel::kWarning) std::fprintf(stderr, "%s\n", std::string(id).c_str());
  }
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

long resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  }
  return 0;
}

EventFile file(std::string name, std::string bytes) {
  return {.name = std::move(name), .size = bytes.size(), .sha256 = sha256_hex(bytes), .bytes = make_bytes(std::move(bytes))};
}

std::shared_ptr<const Event> make_job(int number) {
  Event event;
  event.kind = "job.script";
  event.time = event.captured_at = {1795224382'364'000'000 + number * 1'000'000LL};
  event.capture = "fanotify";
  event.cluster = "lab";
  event.scheduler = "slurm";
  event.host = "ctl1";
  event.job.id = std::to_string(100'000 + number);
  event.job.name = "simulation";
  event.job.account = "chem";
  event.job.partition = "batch";
  event.user.name = "alice";
  event.user.id = "1001";
  event.script =
      ScriptInfo{.interpreter = "/bin/bash", .directives = {"--time=00:10:00", "--nodes=2"}, .modules = {"GROMACS/2023.1"}};
  std::string script = "#!/bin/bash\n#SBATCH --time=00:10:00\n#SBATCH --nodes=2\nmodule load GROMACS/2023.1\n";
  for (int i = 0; script.size() < 2000; ++i)
    script += "srun gmx_mpi mdrun -deffnm run" + std::to_string(number % 50) + "_" + std::to_string(i * 37) + "\n";
  std::string environment;
  for (int i = 0; environment.size() < 4000; ++i) {
    environment += "VARIABLE_" + std::to_string(i) + "=/opt/software/" + std::to_string(i * 7919) +
                   "/lib:" + std::to_string(number * 31 + i) + '\0';
  }
  event.environment_format = EnvironmentFormat::kNulEnded;
  event.files = {file("script", std::move(script)), file("environment", std::move(environment))};
  event.id = event_id(event.cluster, event.scheduler, event.kind, event.job.id, event.time.nanoseconds, event.files[0].sha256);
  return std::make_shared<const Event>(std::move(event));
}

}  // namespace

int main(int argc, char** argv) {
  std::string directory = argc > 1 ? argv[1] : "/tmp/journal-bench.XXXXXX";
  if (argc <= 1 && ::mkdtemp(directory.data()) == nullptr) return 1;
  const int events = argc > 2 ? std::atoi(argv[2]) : 50'000;
  constexpr int kGroup = 1000;
  SilentLogger log;
  auto opened = Journal::open({.directory = directory, .max_bytes = std::uint64_t{64} << 30}, log, system_clock());
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
    for (int i = 0; i < kGroup; ++i) jobs.push_back(make_job(from + i));
    const double before = cpu_seconds();
    for (auto& job : jobs) {
      const std::string entry = "hash." + job->job.id.substr(job->job.id.size() - 1) + "/job." + job->job.id;
      journal.append({.source = "slurm", .event = job, .mark = CaptureMark{.entry = entry, .size = 1, .event_id = job->id}},
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
      for (const auto& item : *items) settlements.push_back({.sequence = item.sequence, .outcome = Outcome::kAcknowledged});
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
  std::printf("a sink that keeps up:   append %.1f us, read + settle + prune %.1f us CPU an event\n", append / events * 1e6,
              settle / events * 1e6);

  append = settle = 0;
  const std::uint64_t empty = journal.usage().bytes;
  for (int i = 0; i < events; i += kGroup) append += append_group(events + i);
  const Journal::Usage usage = journal.usage();
  std::printf("all waiting:            append %.1f us CPU, %.0f bytes on disk an event, %ld KB resident with %llu waiting\n",
              append / events * 1e6, static_cast<double>(usage.bytes - empty) / events, resident_kilobytes(),
              static_cast<unsigned long long>(usage.sinks[0].waiting));
  for (int i = 0; i < events; i += kGroup) settle += settle_group();
  std::printf("draining from disk:     read + settle + prune %.1f us CPU an event; %llu left\n", settle / events * 1e6,
              static_cast<unsigned long long>(journal.usage().events));
  opened = Error{ErrorKind::kVanished, ""};
  if (argc <= 1) std::filesystem::remove_all(directory);
  return 0;
}

// One half of tests/bench/elasticsearch_bench.py, which compares the sink with curl on a real
// server.
//   elasticsearch_bench bodies FOLDER EVENTS BYTES         the bulk bodies that the sink would
//   send, as FOLDER/body.N elasticsearch_bench deliver URL EVENTS [KEY=NUMBER...] journal +
//   dispatcher + plugins/elasticsearch.so; KEY: an option of the
//                                                          sink or of core (batch_max_events ...)
// `deliver` prints one JSON object: seconds, CPU seconds and the peak of resident memory while it
// delivered.
#include <malloc.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "backends/elasticsearch/bulk.h"
#include "core/base/sha256.h"
#include "core/delivery/dispatcher.h"
#include "core/journal/journal.h"
#include "core/plugin/loader.h"

namespace {

using namespace scriptorium;

[[noreturn]] void fail(const std::string& words) {
  std::fprintf(stderr, "elasticsearch_bench: %s\n", words.c_str());
  std::exit(1);
}

class StandardErrorLogger : public Logger {
 public:
  void log(LogLevel level, std::string_view id, std::string_view sentence,
           const Fields& fields) noexcept override {
    if (level < LogLevel::kWarning) return;
    std::string line(id);
    line.append(": ").append(sentence);
    for (const LogField& field : fields)
      line.append(" ").append(field.key).append("=").append(field.value);
    std::fprintf(stderr, "%s\n", line.c_str());
  }
};

// A job with a script of about 2 KB and 60 variables, no two alike.
std::shared_ptr<const Event> job(int number) {
  const std::string id = std::to_string(1'000'000 + number);
  std::string script =
      "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=64\nmodule load "
      "GROMACS/2023.1-foss-2022a\n";
  while (script.size() < 2048) {
    const std::string step =
        std::to_string(script.size() * 31 + static_cast<std::size_t>(number) * 7);
    script.append("srun gmx_mpi mdrun -deffnm /scratch/alice/run")
        .append(id)
        .append("/md_")
        .append(step)
        .append(" -maxh 23.5\n");
  }
  std::string environment;
  for (int i = 0; i < 60; ++i) {
    const std::string text = std::to_string(i);
    environment.append("BENCH_VARIABLE_")
        .append(text)
        .append("=/opt/software/")
        .append(text)
        .append("/lib:");
    environment.append(id).append("/").append(std::to_string(i * number)) += '\0';
  }
  Event event;
  event.kind = "job.script";
  event.cluster = "bench";
  event.scheduler = "slurm";
  event.host = "ctl1";
  event.capture = "fanotify";
  event.time = event.captured_at = {1'795'224'382'000'000'000 + number * 1'000'000LL};
  event.job = {.id = id,
               .name = "md-production",
               .account = "chem",
               .partition = "batch",
               .work_dir = "/home/alice/md"};
  event.user = {
      .name = "alice", .id = "1001", .group_name = "chem", .group_id = "2001", .verified = true};
  event.script = ScriptInfo{.interpreter = "/bin/bash",
                            .directives = {"--nodes=2 --ntasks-per-node=64"},
                            .modules = {"GROMACS/2023.1-foss-2022a"}};
  event.environment_format = EnvironmentFormat::kNulEnded;
  for (auto& [name, bytes] : {std::pair{"script", &script}, {"environment", &environment}}) {
    event.files.push_back({.name = name,
                           .size = bytes->size(),
                           .sha256 = sha256_hex(*bytes),
                           .bytes = make_bytes(*bytes)});
  }
  event.id = event_id(event.cluster, event.scheduler, event.kind, id, event.time.nanoseconds,
                      event.files.front().sha256);
  return std::make_shared<const Event>(std::move(event));
}

Table sink_table(const std::string& url) {
  Table table;
  table.path = "sink.bench";
  const auto value = [](auto data) { return Value{.data = std::move(data), .position = {}}; };
  table.entries = {{"hosts", value(std::vector<Value>{value(url)})}};
  return table;
}

int write_bodies(const std::filesystem::path& folder, int events, std::size_t bytes) {
  Problems problems;
  const auto config = elasticsearch::parse_config(sink_table("http://localhost:9200"), problems);
  std::filesystem::create_directories(folder);
  int files = 0;
  elasticsearch::Body body(bytes);
  const auto write = [&] {
    std::ofstream(folder / ("body." + std::to_string(++files)), std::ios::binary)
        << body.slice(0, body.count());
    body = elasticsearch::Body(bytes);
  };
  for (int i = 0; i < events; ++i) {
    body.add(*job(i), config, elasticsearch::Replacing::kInPlace);
    if (body.size() >= bytes) write();
  }
  if (body.count() > 0) write();
  return 0;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// VmRSS or VmHWM, in KiB.
long memory_of_ours(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    long kilobytes = 0;
    if (word == what + ":" && status >> kilobytes) return kilobytes;
  }
  return 0;
}

int deliver(const std::string& url, int events, const std::vector<std::string>& settings) {
  StandardErrorLogger log;
  std::string directory = (std::filesystem::temp_directory_path() / "es-bench.XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) fail("cannot make " + directory);
  auto journal = Journal::open({.directory = directory, .max_bytes = std::uint64_t{16} << 30}, log,
                               system_clock());
  if (!journal) fail(journal.error().message());
  const auto id = (*journal)->register_sink("bench", {"job.script"});
  if (!id) fail(id.error().message());
  std::stop_source never;
  for (int i = 0; i < events; ++i) {
    auto event = job(i);
    const CaptureMark mark{
        .entry = "hash.0/job." + event->job.id, .size = 1, .event_id = event->id};
    (*journal)->append({.source = "bench", .event = std::move(event), .mark = mark},
                       never.get_token());
  }
  (*journal)->flush(std::chrono::steady_clock::now() + std::chrono::minutes(10));

  PluginLoader loader(
      {(std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "plugins")
           .string()});
  const auto plugin = loader.load("elasticsearch");
  if (!plugin) fail(plugin.error().message());
  Table table = sink_table(url);
  SinkConfig config;
  config.plugin = "elasticsearch";
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    const std::int64_t number = std::atoll(setting.c_str() + key.size() + 1);
    if (key == "batch_max_events")
      config.batch_max_events = number;
    else if (key == "batch_max_bytes")
      config.batch_max_bytes = number;
    else if (key == "workers")
      config.workers = number;
    else
      table.entries.push_back({key, Value{.data = number, .position = {}}});
  }
  auto sink = create_sink(
      *plugin, table, {.name = "bench", .cluster = "bench", .log = log, .clock = system_clock()});
  if (!sink) fail(sink.error().message());
  if (auto started = (*sink)->start(); !started) fail(started.error().message());
  Dispatcher dispatcher("bench", config, **sink, **journal, *id, log, system_clock(), 1);

  // Making the events is not what is measured: give back what it used, and let the peak count from
  // here.
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  const long before = memory_of_ours("VmRSS");
  const double cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  dispatcher.start();
  std::mutex mutex;
  std::condition_variable never_notified;
  while (dispatcher.status().acknowledged < static_cast<std::uint64_t>(events)) {
    std::unique_lock lock(mutex);
    never_notified.wait_for(lock, std::chrono::milliseconds(2));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(R"({"seconds": %.3f, "cpu_seconds": %.3f, "peak_kib": %ld, "before_kib": %ld})"
              "\n",
              seconds, cpu_seconds() - cpu, memory_of_ours("VmHWM"), before);
  if (!dispatcher.stop(std::chrono::steady_clock::now() + std::chrono::seconds(30)))
    fail("the sink does not stop");
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 4 && arguments[0] == "bodies") {
    return write_bodies(arguments[1], std::stoi(arguments[2]), std::stoul(arguments[3]));
  }
  if (arguments.size() >= 3 && arguments[0] == "deliver") {
    return deliver(arguments[1], std::stoi(arguments[2]), {arguments.begin() + 3, arguments.end()});
  }
  fail(
      "usage: elasticsearch_bench bodies FOLDER EVENTS BYTES | deliver URL EVENTS [KEY=NUMBER...]");
}

// What the Kafka sink costs on the way from the journal to a real broker, against bare librdkafka loops in the same run.
//   kafka_bench BROKERS [--pid N] [--messages N] [--only loops|variants|stalls|latency]
// BROKERS: one broker on this machine, such as tests/support/servers/kafka/kafka-node.sh starts; N its pid, to hang it:
//   LIB=$(tests/support/servers/fetch kafka3) tests/support/servers/kafka/kafka-node.sh DIR 19092
// Prints messages a second, CPU time a message (this process, all threads), the share of a core while the broker hangs or
// lacks replicas, and how long an event takes from capture to its delivery report.
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/sha256.h"
#include "core/delivery/dispatcher.h"
#include "core/journal/journal.h"
#include "core/plugin/loader.h"

namespace {

using namespace scriptorium;
using std::chrono::milliseconds;
using std::chrono::seconds;

// One produce request: what the sink hands over before it waits (backends/kafka/README.md says why).
constexpr std::size_t kRequestBytes = 900'000;

class WarningLogger : public Logger {
 public:
  void log(LogLevel level, std::string_view id, std::string_view sentence, const Fields& fields) noexcept override {
    if (level < LogLevel::kWarning) return;
    std::string line = std::string(id) + ": " + std::string(sentence);
    for (const auto& field : fields) line += " " + field.key + "=" + field.value;
    std::fprintf(stderr, "%s\n", line.c_str());
  }
};

[[noreturn]] void fail(const std::string& words) {
  std::fprintf(stderr, "kafka_bench: %s\n", words.c_str());
  std::exit(1);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

double since(SteadyTime start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

// ---- events -------------------------------------------------------------------------------------------------------
EventFile file(std::string name, std::string bytes) {
  return {.name = std::move(name), .size = bytes.size(), .sha256 = sha256_hex(bytes), .bytes = make_bytes(std::move(bytes))};
}

// A job whose event is about `json_bytes` long; about 1.3 KB of that are its members.
std::shared_ptr<const Event> make_job(int number, std::size_t json_bytes, Timestamp captured) {
  const std::size_t texts = json_bytes > 1400 ? json_bytes - 1300 : 100;
  Event event;
  event.kind = "job.script";
  event.time = event.captured_at = captured;
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
  event.script = ScriptInfo{.interpreter = "/bin/bash", .directives = {"--time=00:10:00"}, .modules = {"GROMACS/2023.1"}};
  std::string script = "#!/bin/bash\n#SBATCH --time=00:10:00\nmodule load GROMACS/2023.1\n";
  for (int i = 0; script.size() < texts * 2 / 3; ++i)
    script += "srun gmx_mpi mdrun -deffnm run" + std::to_string(number) + "_" + std::to_string(i * 37) + "\n";
  std::string environment;
  for (int i = 0; environment.size() < texts / 3; ++i) {
    environment += "VARIABLE_" + std::to_string(i) + "=/opt/software/" + std::to_string(i * 7919) +
                   "/lib:" + std::to_string(number * 31 + i) + '\0';
  }
  event.environment_format = EnvironmentFormat::kNulEnded;
  event.files = {file("script", std::move(script)), file("environment", std::move(environment))};
  event.id = event_id(event.cluster, event.scheduler, event.kind, event.job.id, number, event.files[0].sha256);
  return std::make_shared<const Event>(std::move(event));
}

// ---- the bare loops -------------------------------------------------------------------------------------------------
using Properties = std::vector<std::pair<std::string, std::string>>;

struct RdKafkaDeleter {
  void operator()(rd_kafka_t* p) const { rd_kafka_destroy(p); }
  void operator()(rd_kafka_topic_t* p) const { rd_kafka_topic_destroy(p); }
};

struct Reports {
  std::atomic<long> good{0};
  std::atomic<long> bad{0};
};

void on_report(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) noexcept {
  auto& reports = *static_cast<Reports*>(opaque);
  ++(message->err == RD_KAFKA_RESP_ERR_NO_ERROR ? reports.good : reports.bad);
}

std::unique_ptr<rd_kafka_t, RdKafkaDeleter> make_producer(const std::string& brokers, Reports& reports) {
  // The sink's own settings, with a queue that the unbounded loop can fill.
  const Properties properties = {{"bootstrap.servers", brokers},
                                 {"enable.idempotence", "true"},
                                 {"message.timeout.ms", "0"},
                                 {"message.max.bytes", "8388608"},
                                 {"batch.size", "1000000"},
                                 {"linger.ms", "50"},
                                 {"compression.codec", "zstd"},
                                 {"partitioner", "murmur2_random"},
                                 {"socket.nagle.disable", "true"},
                                 {"queue.buffering.max.messages", "100000"},
                                 {"queue.buffering.max.kbytes", "262144"}};
  char words[512];
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  for (const auto& [key, value] : properties) {
    if (rd_kafka_conf_set(conf, key.c_str(), value.c_str(), words, sizeof words) != RD_KAFKA_CONF_OK) fail(words);
  }
  rd_kafka_conf_set_dr_msg_cb(conf, &on_report);
  rd_kafka_conf_set_opaque(conf, &reports);
  std::unique_ptr<rd_kafka_t, RdKafkaDeleter> producer(rd_kafka_new(RD_KAFKA_PRODUCER, conf, words, sizeof words));
  if (!producer) fail(words);
  return producer;
}

void create_topic(const std::string& brokers, const std::string& name, int partitions, const Properties& settings = {}) {
  Reports reports;
  const auto producer = make_producer(brokers, reports);
  char words[512];
  rd_kafka_NewTopic_t* topic = rd_kafka_NewTopic_new(name.c_str(), partitions, 1, words, sizeof words);
  for (const auto& [key, value] : settings) rd_kafka_NewTopic_set_config(topic, key.c_str(), value.c_str());
  rd_kafka_queue_t* queue = rd_kafka_queue_new(producer.get());
  rd_kafka_AdminOptions_t* options = rd_kafka_AdminOptions_new(producer.get(), RD_KAFKA_ADMIN_OP_CREATETOPICS);
  rd_kafka_AdminOptions_set_operation_timeout(options, 30'000, words, sizeof words);
  rd_kafka_CreateTopics(producer.get(), &topic, 1, options, queue);
  rd_kafka_event_t* answer = rd_kafka_queue_poll(queue, 60'000);
  if (answer == nullptr || rd_kafka_event_error(answer) != RD_KAFKA_RESP_ERR_NO_ERROR) fail("no topic " + name);
  rd_kafka_event_destroy(answer);
  rd_kafka_AdminOptions_destroy(options);
  rd_kafka_queue_destroy(queue);
  rd_kafka_NewTopic_destroy(topic);
}

struct Measured {
  double per_second = 0;
  double cpu_us = 0;  // a message
};

struct Message {
  std::string key;
  std::string value;
};

// Rendered beforehand. bounded: hands over as the sink does, one request at a time; else as much as the queue takes.
Measured bare_loop(const std::string& brokers, const std::string& topic_name, const std::vector<Message>& messages,
                   bool bounded) {
  Reports reports;
  const auto producer = make_producer(brokers, reports);
  std::unique_ptr<rd_kafka_topic_t, RdKafkaDeleter> topic(rd_kafka_topic_new(producer.get(), topic_name.c_str(), nullptr));
  const auto produce = [&](const Message& message) {
    return rd_kafka_produce(topic.get(), RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, const_cast<char*>(message.value.data()),
                            message.value.size(), message.key.data(), message.key.size(), nullptr) == 0;
  };
  // The first message of a handle waits for the connection and the producer id: that is not what is measured.
  produce(messages.front());
  rd_kafka_flush(producer.get(), 60'000);
  reports.good = 0;
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  std::size_t bytes = 0;
  for (const Message& message : messages) {
    if (bounded && bytes > 0 && bytes + message.value.size() > kRequestBytes) {
      rd_kafka_flush(producer.get(), 60'000);
      bytes = 0;
    }
    bytes += message.value.size();
    while (!produce(message)) {
      if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) fail(rd_kafka_err2str(rd_kafka_last_error()));
      rd_kafka_poll(producer.get(), 10);
    }
    if (!bounded) rd_kafka_poll(producer.get(), 0);
  }
  rd_kafka_flush(producer.get(), 120'000);
  const double wall = since(start);
  const auto count = static_cast<double>(messages.size());
  if (reports.good != static_cast<long>(messages.size()) || reports.bad != 0) fail("the bare loop lost messages");
  return {count / wall, (cpu_seconds() - cpu) / count * 1e6};
}

// ---- the sink -------------------------------------------------------------------------------------------------------
// Between dispatcher and sink: notes when each delivery report came.
class TimedSink final : public Sink {
 public:
  explicit TimedSink(Sink& sink) : sink_(sink), notes_(std::make_shared<Notes>()) {}

  Result<void> start() override { return sink_.start(); }
  void stop(SteadyTime deadline) override { sink_.stop(deadline); }
  void deliver(std::vector<Delivery> batch) override {
    gate_.wait(true);
    std::vector<Delivery> timed;
    timed.reserve(batch.size());
    for (Delivery& delivery : batch) {
      auto event = delivery.shared_event();
      const auto attempt = delivery.attempt();
      timed.emplace_back(std::move(event), attempt, std::make_shared<Note>(std::move(delivery), notes_), 0);
    }
    sink_.deliver(std::move(timed));
  }
  // While it is closed, what the dispatcher hands over waits, and so the rest stays in the journal.
  void close_gate() { gate_ = true; }
  void open_gate() {
    gate_ = false;
    gate_.notify_all();
  }
  std::vector<double> milliseconds_taken() const {
    const std::scoped_lock lock(notes_->mutex);
    return notes_->taken;
  }

 private:
  struct Notes {
    std::mutex mutex;
    std::vector<double> taken;
  };
  class Note final : public Settler {
   public:
    Note(Delivery delivery, std::shared_ptr<Notes> notes) : delivery_(std::move(delivery)), notes_(std::move(notes)) {}
    void settled(Settlement settlement) noexcept override {
      if (settlement.outcome == Outcome::kAcknowledged) {
        const auto taken = system_clock().now().nanoseconds - delivery_.event().captured_at.nanoseconds;
        {
          const std::scoped_lock lock(notes_->mutex);
          notes_->taken.push_back(static_cast<double>(taken) * 1e-6);
        }
        delivery_.acknowledge();
      } else if (settlement.outcome == Outcome::kRetry) {
        delivery_.retry(std::move(settlement.reason), settlement.hint);
      } else {
        delivery_.reject(std::move(settlement.reason));
      }
    }

   private:
    Delivery delivery_;
    std::shared_ptr<Notes> notes_;
  };
  Sink& sink_;
  std::shared_ptr<Notes> notes_;
  std::atomic<bool> gate_{false};
};

Value text_value(std::string text) { return Value{.data = std::move(text), .position = {}}; }

// A journal, a dispatcher and the sink from plugins/kafka.so, as the daemon puts them together.
class Pipeline {
 public:
  Pipeline(const std::string& brokers, const std::string& topic, int workers) {
    directory_ = (std::filesystem::temp_directory_path() / "kafka-bench.XXXXXX").string();
    if (::mkdtemp(directory_.data()) == nullptr) fail("mkdtemp " + directory_);
    auto journal = Journal::open({.directory = directory_, .max_bytes = std::uint64_t{64} << 30}, log_, system_clock());
    if (!journal) fail(journal.error().message());
    journal_ = std::move(*journal);
    const auto id = journal_->register_sink("kafka", {"job.script"});
    if (!id) fail(id.error().message());
    PluginLoader loader({(std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "plugins").string()});
    const auto plugin = loader.load("kafka");
    if (!plugin) fail(plugin.error().message());
    Table table;
    table.path = "sink.kafka";
    table.entries = {{"brokers", text_value(brokers)}, {"topic", text_value(topic)}};
    Problems problems;
    plugin->descriptor->check(table, problems);
    if (!problems.empty()) fail(problems.list().front().text());
    auto sink = create_sink(*plugin, table, {.name = "kafka", .cluster = "lab", .log = log_, .clock = system_clock()});
    if (!sink) fail(sink.error().message());
    sink_ = std::move(*sink);
    timed_ = std::make_unique<TimedSink>(*sink_);
    if (auto started = timed_->start(); !started) fail(started.error().message());
    SinkConfig config;
    config.plugin = "kafka";
    config.workers = workers;
    dispatcher_ = std::make_unique<Dispatcher>("kafka", config, *timed_, *journal_, *id, log_, system_clock(), 1);
  }
  ~Pipeline() {
    dispatcher_->stop(std::chrono::steady_clock::now() + seconds(30));
    dispatcher_.reset();
    timed_.reset();
    sink_.reset();
    journal_.reset();
    std::filesystem::remove_all(directory_);
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  void append(std::shared_ptr<const Event> event) {
    const std::string entry = "hash.0/job." + event->job.id;
    const std::string id = event->id;
    journal_->append(
        {.source = "slurm", .event = std::move(event), .mark = CaptureMark{.entry = entry, .size = 1, .event_id = id}},
        never_.get_token());
  }
  void flush() { journal_->flush(std::chrono::steady_clock::now() + std::chrono::minutes(10)); }
  void start() { dispatcher_->start(); }
  // Every one has its delivery report.
  void wait(std::uint64_t acknowledged) const {
    while (dispatcher_->status().acknowledged < acknowledged) std::this_thread::sleep_for(milliseconds(1));
  }
  TimedSink& sink() { return *timed_; }

 private:
  std::string directory_;
  WarningLogger log_;
  std::stop_source never_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<TimedSink> timed_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

// All events wait in the journal before the clock starts.
Measured through_the_sink(const std::string& brokers, const std::string& topic, int count, std::size_t bytes, int workers) {
  Pipeline pipeline(brokers, topic, workers);
  // As in the bare loop, the first message of a handle is not measured.
  pipeline.append(make_job(-1, bytes, system_clock().now()));
  pipeline.start();
  pipeline.wait(1);
  pipeline.sink().close_gate();
  for (int i = 0; i < count; ++i) pipeline.append(make_job(i, bytes, system_clock().now()));
  pipeline.flush();
  const double cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  pipeline.sink().open_gate();
  pipeline.wait(static_cast<std::uint64_t>(count) + 1);
  const double wall = since(start);
  return {count / wall, (cpu_seconds() - cpu) / count * 1e6};
}

// What the way costs before librdkafka: reading events back from the journal and settling them, and making JSON of them.
void print_parts(int count, std::size_t bytes) {
  std::string directory = (std::filesystem::temp_directory_path() / "kafka-bench.XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) fail("mkdtemp " + directory);
  WarningLogger log;
  auto journal = Journal::open({.directory = directory, .max_bytes = std::uint64_t{64} << 30}, log, system_clock());
  if (!journal) fail(journal.error().message());
  const auto sink = (*journal)->register_sink("parts", {"job.script"});
  std::stop_source never;
  for (int i = 0; i < count; ++i)
    (*journal)->append({.source = "slurm", .event = make_job(i, bytes, system_clock().now())}, never.get_token());
  const auto far = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  (*journal)->flush(far);
  double reading = 0, rendering = 0, settling = 0;
  std::size_t length = 0;
  for (std::uint64_t after = 0;;) {
    const double start = cpu_seconds();
    auto items = (*journal)->read(*sink, after, 500, std::uint64_t{8} << 20);
    if (!items || items->empty()) break;
    const double have = cpu_seconds();
    std::vector<Journal::Settle> settlements;
    for (const auto& item : *items) {
      length += event_json(*item.event).size();
      settlements.push_back({.sequence = item.sequence, .outcome = Outcome::kAcknowledged});
    }
    const double rendered = cpu_seconds();
    after = items->back().sequence;
    (*journal)->settle(*sink, std::move(settlements), after);
    (*journal)->flush(far);
    reading += have - start;
    rendering += rendered - have;
    settling += cpu_seconds() - rendered;
  }
  std::printf(
      "  of that, in CPU an event: reading it from the journal %.1f us, making its JSON %.1f us, settling and removing it %.1f "
      "us\n",
      reading / count * 1e6, rendering / count * 1e6, settling / count * 1e6);
  if (length == 0) fail("no JSON was made");
  *journal = nullptr;
  std::filesystem::remove_all(directory);
}

std::string fresh_name(std::string_view what) {
  static int number = 0;
  return "bench-" + std::string(what) + "-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

std::vector<Message> render(int count, std::size_t bytes) {
  std::vector<Message> messages;
  messages.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto event = make_job(i, bytes, system_clock().now());
    messages.push_back({event->cluster + "/" + event->job.id, event_json(*event)});
  }
  return messages;
}

void print_row(const char* what, const Measured& m, const Measured& bounded, const Measured& unbounded) {
  std::printf("  %-34s %9.0f /s %8.1f us CPU   %5.2f of bounded   %5.2f of unbounded\n", what, m.per_second, m.cpu_us,
              m.per_second / bounded.per_second, m.per_second / unbounded.per_second);
  std::fflush(stdout);
}

void compare(const std::string& brokers, int count, std::size_t bytes, bool variants) {
  const auto messages = render(count, bytes);
  std::size_t total = 0;
  for (const auto& message : messages) total += message.value.size();
  const auto topic = [&](int partitions) {
    std::string name = fresh_name("topic");
    create_topic(brokers, name, partitions);
    return name;
  };
  std::printf("%d events of %zu bytes on average\n", count, total / messages.size());
  // The order is turned, as a machine that warms up or is shared favours one side.
  Measured bounded, unbounded, sink;
  const auto better = [](Measured& best, const Measured& now) {
    if (now.per_second > best.per_second) best = now;
  };
  for (int round = 0; round < 3; ++round) {
    for (int turn = 0; turn < 3; ++turn) {
      switch ((round + turn) % 3) {
        case 0: better(bounded, bare_loop(brokers, topic(1), messages, true)); break;
        case 1: better(unbounded, bare_loop(brokers, topic(1), messages, false)); break;
        default: better(sink, through_the_sink(brokers, topic(1), count, bytes, 1)); break;
      }
    }
  }
  print_row("librdkafka, one request at a time", bounded, bounded, unbounded);
  print_row("librdkafka, unbounded", unbounded, bounded, unbounded);
  print_row("journal + dispatcher + sink", sink, bounded, unbounded);
  print_parts(count, bytes);
  if (!variants) return;
  for (const int workers : {1, 2, 4}) {
    for (const int partitions : {1, 3}) {
      if (workers == 1 && partitions == 1) continue;
      const std::string words = "  workers = " + std::to_string(workers) + ", partitions = " + std::to_string(partitions);
      print_row(words.c_str(), through_the_sink(brokers, topic(partitions), count, bytes, workers), bounded, unbounded);
    }
  }
}

// What the process burns while its messages cannot go: `stall` begins it, `heal` ends it, all must then be reported.
template <typename Stall, typename Heal>
void stalled(const char* what, const std::string& brokers, const std::string& topic, Stall stall, Heal heal) {
  constexpr int kWaiting = 5000;
  constexpr auto kTime = seconds(20);
  Pipeline pipeline(brokers, topic, 1);
  pipeline.append(make_job(-1, 2048, system_clock().now()));
  pipeline.start();
  const bool connected = stall(pipeline);
  for (int i = 0; i < kWaiting; ++i) pipeline.append(make_job(i, 2048, system_clock().now()));
  pipeline.flush();
  std::this_thread::sleep_for(seconds(2));
  const double cpu = cpu_seconds();
  std::this_thread::sleep_for(kTime);
  std::printf("  %-34s %6.2f %% of a core, %d events waiting\n", what,
              (cpu_seconds() - cpu) / std::chrono::duration<double>(kTime).count() * 100, kWaiting);
  std::fflush(stdout);
  heal();
  if (connected) pipeline.wait(kWaiting + 1);
}

void latency(const std::string& brokers) {
  const std::string topic = fresh_name("latency");
  create_topic(brokers, topic, 1);
  constexpr int kPerSecond = 1000;
  constexpr int kSeconds = 20;
  Pipeline pipeline(brokers, topic, 1);
  pipeline.append(make_job(-1, 6144, system_clock().now()));
  pipeline.start();
  pipeline.wait(1);
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  for (int i = 0; i < kPerSecond * kSeconds; ++i) {
    std::this_thread::sleep_until(start + std::chrono::microseconds(std::int64_t{1'000'000} * i / kPerSecond));
    pipeline.append(make_job(i, 6144, system_clock().now()));
  }
  pipeline.wait(kPerSecond * kSeconds + 1);
  const double busy = cpu_seconds() - cpu;
  auto taken = pipeline.sink().milliseconds_taken();
  taken.erase(taken.begin());  // the first message of the handle
  std::sort(taken.begin(), taken.end());
  const auto at = [&](double part) { return taken[static_cast<std::size_t>(part * static_cast<double>(taken.size() - 1))]; };
  std::printf(
      "capture to delivery report at %d events of 6 KB a second, %d s: p50 %.1f ms, p90 %.1f, p99 %.1f, p99.9 %.1f, max %.1f; "
      "%.0f us CPU an event (making it included)\n",
      kPerSecond, kSeconds, at(0.5), at(0.9), at(0.99), at(0.999), taken.back(), busy / (kPerSecond * kSeconds) * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  std::string brokers;
  std::string only;
  pid_t broker_pid = 0;
  int messages = 60'000;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--pid" && more) {
      broker_pid = std::atoi(argv[++i]);
    } else if (word == "--messages" && more) {
      messages = std::atoi(argv[++i]);
    } else if (word == "--only" && more) {
      only = argv[++i];
    } else if (!word.starts_with("-") && brokers.empty()) {
      brokers = word;
    } else {
      brokers.clear();
      break;
    }
  }
  if (brokers.empty() || messages < 1000) {
    std::fprintf(stderr, "usage: kafka_bench BROKERS [--pid N] [--messages N] [--only loops|variants|stalls|latency]\n");
    return 64;
  }
  std::printf("librdkafka %s; best of three rounds each\n", rd_kafka_version_str());
  const auto wanted = [&](std::string_view part) { return only.empty() || only == part; };
  if (wanted("loops") || wanted("variants")) {
    compare(brokers, messages, 2048, wanted("variants"));
    compare(brokers, messages / 5, 16384, wanted("variants"));
  }
  if (wanted("latency")) latency(brokers);
  if (wanted("stalls")) {
    std::printf("while nothing can be delivered:\n");
    if (broker_pid > 0) {
      const std::string topic = fresh_name("hung");
      create_topic(brokers, topic, 1);
      stalled(
          "the broker hangs (SIGSTOP)", brokers, topic,
          [&](Pipeline& pipeline) {
            pipeline.wait(1);
            ::kill(broker_pid, SIGSTOP);
            return true;
          },
          [&] { ::kill(broker_pid, SIGCONT); });
    } else {
      std::printf("  (no --pid, so the broker was not hung)\n");
    }
  }
  return 0;
}

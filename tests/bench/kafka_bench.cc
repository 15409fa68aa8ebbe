// What the Kafka sink costs on the way from the journal to a real broker, against bare librdkafka
// loops in the same run.
//   kafka_bench BROKERS [--pid N] [--messages N] [--rounds N] [--only
//   loops|parts|variants|stalls|latency]
// BROKERS: one broker on this machine, such as tests/support/servers/kafka/kafka-node.sh starts; N
// its pid, to hang it:
//   LIB=$(tests/support/servers/fetch kafka4) TIER=4 HEAP=1g
//   tests/support/servers/kafka/kafka-node.sh DIR 19092
// Prints messages a second, CPU time a message (this process, all threads), the share of a core
// while the broker hangs or lacks replicas, and how long an event takes from capture to its
// delivery report. Figures are medians of rounds in turn, ratios the medians of what each round
// gives by itself, as a shared machine is faster in one minute than in the next.
#include <librdkafka/rdkafka.h>
#include <signal.h>
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

#include "core/delivery/dispatcher.h"
#include "core/journal/journal.h"
#include "core/plugin/loader.h"
#include "tests/bench/bench_fixture.h"

namespace {

using namespace scriptorium;
using bench::cpu_seconds;
using bench::fail;
using bench::make_job_of;
using std::chrono::milliseconds;
using std::chrono::seconds;

// One produce request: what the sink hands over before it waits (backends/kafka/README.md says
// why).
constexpr std::size_t kRequestBytes = 1'000'000 - 512;

double since(SteadyTime start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// ---- the bare loops
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

std::unique_ptr<rd_kafka_t, RdKafkaDeleter> make_producer(const std::string& brokers,
                                                          Reports& reports) {
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
    if (rd_kafka_conf_set(conf, key.c_str(), value.c_str(), words, sizeof words) !=
        RD_KAFKA_CONF_OK)
      fail(words);
  }
  rd_kafka_conf_set_dr_msg_cb(conf, &on_report);
  rd_kafka_conf_set_opaque(conf, &reports);
  std::unique_ptr<rd_kafka_t, RdKafkaDeleter> producer(
      rd_kafka_new(RD_KAFKA_PRODUCER, conf, words, sizeof words));
  if (!producer) fail(words);
  return producer;
}

void create_topic(const std::string& brokers, const std::string& name, int partitions,
                  const Properties& settings = {}) {
  Reports reports;
  const auto producer = make_producer(brokers, reports);
  char words[512];
  rd_kafka_NewTopic_t* topic =
      rd_kafka_NewTopic_new(name.c_str(), partitions, 1, words, sizeof words);
  for (const auto& [key, value] : settings)
    rd_kafka_NewTopic_set_config(topic, key.c_str(), value.c_str());
  rd_kafka_queue_t* queue = rd_kafka_queue_new(producer.get());
  rd_kafka_AdminOptions_t* options =
      rd_kafka_AdminOptions_new(producer.get(), RD_KAFKA_ADMIN_OP_CREATETOPICS);
  rd_kafka_AdminOptions_set_operation_timeout(options, 30'000, words, sizeof words);
  rd_kafka_CreateTopics(producer.get(), &topic, 1, options, queue);
  rd_kafka_event_t* answer = rd_kafka_queue_poll(queue, 60'000);
  if (answer == nullptr || rd_kafka_event_error(answer) != RD_KAFKA_RESP_ERR_NO_ERROR)
    fail("no topic " + name);
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
  std::vector<std::pair<std::string, std::string>> headers;
  std::int64_t timestamp_ms = 0;

  // As the sink counts it: with what stands around a message and a header.
  std::size_t size() const {
    std::size_t sum = 48 + key.size() + value.size();
    for (const auto& [name, text] : headers) sum += 10 + name.size() + text.size();
    return sum;
  }
};

// Rendered beforehand, with the same keys, headers and timestamps. bounded: hands over as the sink
// does, as much as fits into one request, and goes on when every message of it has its report; else
// as much as librdkafka's queue takes.
Measured bare_loop(const std::string& brokers, const std::string& topic,
                   const std::vector<Message>& messages, bool bounded) {
  Reports reports;
  const auto producer = make_producer(brokers, reports);
  const auto produce = [&](const Message& message) {
    rd_kafka_headers_t* headers = rd_kafka_headers_new(message.headers.size());
    for (const auto& [name, text] : message.headers) {
      rd_kafka_header_add(headers, name.data(), static_cast<ssize_t>(name.size()), text.data(),
                          static_cast<ssize_t>(text.size()));
    }
    const auto error = rd_kafka_producev(
        producer.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_MSGFLAGS(0),
        RD_KAFKA_V_VALUE(const_cast<char*>(message.value.data()), message.value.size()),
        RD_KAFKA_V_KEY(message.key.data(), message.key.size()),
        RD_KAFKA_V_TIMESTAMP(message.timestamp_ms), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) rd_kafka_headers_destroy(headers);
    return error;
  };
  // The first message of a handle waits for the connection and the producer id: that is not what is
  // measured.
  produce(messages.front());
  rd_kafka_flush(producer.get(), 60'000);
  reports.good = 0;
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  std::size_t bytes = 0;
  for (const Message& message : messages) {
    if (bounded && bytes > 0 && bytes + message.size() > kRequestBytes) {
      rd_kafka_flush(producer.get(), 60'000);
      bytes = 0;
    }
    bytes += message.size();
    while (const auto error = produce(message)) {
      if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) fail(rd_kafka_err2str(error));
      rd_kafka_poll(producer.get(), 10);
    }
    if (!bounded) rd_kafka_poll(producer.get(), 0);
  }
  rd_kafka_flush(producer.get(), 120'000);
  const double wall = since(start);
  const auto count = static_cast<double>(messages.size());
  if (reports.good != static_cast<long>(messages.size()) || reports.bad != 0)
    fail("the bare loop lost messages");
  return {count / wall, (cpu_seconds() - cpu) / count * 1e6};
}

// ---- the sink
// Between dispatcher and sink: notes when each delivery report came.
class TimedSink final : public Sink {
 public:
  // Not `timed`: only the gate, which costs nothing.
  TimedSink(Sink& sink, bool timed)
      : sink_(sink), timed_(timed), notes_(std::make_shared<Notes>()) {}

  Result<void> start() override { return sink_.start(); }
  void stop(SteadyTime deadline) override { sink_.stop(deadline); }
  std::size_t batches_under_way() const override { return sink_.batches_under_way(); }
  void deliver(std::vector<Delivery> batch) override {
    gate_.wait(true);
    if (!timed_) return sink_.deliver(std::move(batch));
    std::vector<Delivery> timed;
    timed.reserve(batch.size());
    for (Delivery& delivery : batch) {
      auto event = delivery.shared_event();
      const auto attempt = delivery.attempt();
      timed.emplace_back(std::move(event), attempt,
                         std::make_shared<Note>(std::move(delivery), notes_), 0);
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
    Note(Delivery delivery, std::shared_ptr<Notes> notes)
        : delivery_(std::move(delivery)), notes_(std::move(notes)) {}
    void settled(Settlement settlement) noexcept override {
      if (settlement.outcome == Outcome::kAcknowledged) {
        const auto taken =
            system_clock().now().nanoseconds - delivery_.event().captured_at.nanoseconds;
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
  const bool timed_;
  std::shared_ptr<Notes> notes_;
  std::atomic<bool> gate_{false};
};

Value text_value(std::string text) { return Value{.data = std::move(text), .position = {}}; }

// A journal, a dispatcher and the sink from plugins/kafka.so, as the daemon puts them together.
class Pipeline {
 public:
  Pipeline(const std::string& brokers, const std::string& topic, int workers, bool timed = false) {
    auto journal =
        Journal::open({.directory = directory_.path(), .max_bytes = std::uint64_t{64} << 30}, log_,
                      system_clock());
    if (!journal) fail(journal.error().message());
    journal_ = std::move(*journal);
    const auto id = journal_->register_sink("kafka", {"job.script"});
    if (!id) fail(id.error().message());
    PluginLoader loader(
        {(std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "plugins")
             .string()});
    const auto plugin = loader.load("kafka");
    if (!plugin) fail(plugin.error().message());
    Table table;
    table.path = "sink.kafka";
    table.entries = {{"brokers", text_value(brokers)}, {"topic", text_value(topic)}};
    Problems problems;
    plugin->descriptor->check(table, problems);
    if (!problems.empty()) fail(problems.list().front().text());
    auto sink = create_sink(
        *plugin, table, {.name = "kafka", .cluster = "lab", .log = log_, .clock = system_clock()});
    if (!sink) fail(sink.error().message());
    sink_ = std::move(*sink);
    timed_ = std::make_unique<TimedSink>(*sink_, timed);
    if (auto started = timed_->start(); !started) fail(started.error().message());
    SinkConfig config;
    config.plugin = "kafka";
    config.workers = workers;
    dispatcher_ = std::make_unique<Dispatcher>("kafka", config, *timed_, *journal_, *id, log_,
                                               system_clock(), 1);
  }
  ~Pipeline() {
    dispatcher_->stop(std::chrono::steady_clock::now() + seconds(30));
    dispatcher_.reset();
    timed_.reset();
    sink_.reset();
    journal_.reset();
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  void append(std::shared_ptr<const Event> event) {
    const std::string entry = "hash.0/job." + event->job.id;
    const std::string id = event->id;
    journal_->append({.source = "slurm",
                      .event = std::move(event),
                      .mark = CaptureMark{.entry = entry, .size = 1, .event_id = id}},
                     never_.get_token());
  }
  void flush() { journal_->flush(std::chrono::steady_clock::now() + std::chrono::minutes(10)); }
  void start() { dispatcher_->start(); }
  // Every one has its delivery report.
  void wait(std::uint64_t acknowledged) const {
    while (dispatcher_->status().acknowledged < acknowledged)
      std::this_thread::sleep_for(milliseconds(1));
  }
  TimedSink& sink() { return *timed_; }

 private:
  bench::TemporaryDirectory directory_;
  bench::WarningLogger log_;
  std::stop_source never_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<TimedSink> timed_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

// All events wait in the journal before the clock starts. handles: as many sinks, each with its own
// part of the events.
Measured through_the_sink(const std::string& brokers, const std::string& topic, int count,
                          std::size_t bytes, int workers, int handles = 1) {
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (int i = 0; i < handles; ++i) {
    Pipeline& pipeline =
        *pipelines.emplace_back(std::make_unique<Pipeline>(brokers, topic, workers));
    // As in the bare loop, the first message of a handle is not measured.
    pipeline.append(make_job_of(-1 - i, bytes, system_clock().now()));
    pipeline.start();
    pipeline.wait(1);
    pipeline.sink().close_gate();
  }
  std::vector<std::uint64_t> given(pipelines.size(), 1);
  for (int i = 0; i < count; ++i) {
    const std::size_t which = static_cast<std::size_t>(i) % pipelines.size();
    pipelines[which]->append(make_job_of(i, bytes, system_clock().now()));
    ++given[which];
  }
  for (const auto& pipeline : pipelines) pipeline->flush();
  const double cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  for (const auto& pipeline : pipelines) pipeline->sink().open_gate();
  for (std::size_t i = 0; i < pipelines.size(); ++i) pipelines[i]->wait(given[i]);
  const double wall = since(start);
  return {count / wall, (cpu_seconds() - cpu) / count * 1e6};
}

// What the way costs before librdkafka: reading events back from the journal, making JSON of them,
// settling and removing them.
void print_parts(int count, std::size_t bytes) {
  const bench::TemporaryDirectory directory;
  bench::WarningLogger log;
  auto journal = Journal::open(
      {.directory = directory.path(), .max_bytes = std::uint64_t{64} << 30}, log, system_clock());
  if (!journal) fail(journal.error().message());
  const auto sink = (*journal)->register_sink("parts", {"job.script"});
  std::stop_source never;
  for (int i = 0; i < count; ++i)
    (*journal)->append({.source = "slurm", .event = make_job_of(i, bytes, system_clock().now())},
                       never.get_token());
  const auto far = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  (*journal)->flush(far);
  double reading = 0, rendering = 0;
  std::size_t length = 0;
  std::vector<std::vector<Journal::Settle>> settlements;
  for (std::uint64_t after = 0;;) {
    const double start = cpu_seconds();
    auto items = (*journal)->read(*sink, after, 500, std::uint64_t{8} << 20);
    if (!items || items->empty()) break;
    const double have = cpu_seconds();
    for (const auto& item : *items) length += event_json(*item.event).size();
    reading += have - start;
    rendering += cpu_seconds() - have;
    auto& batch = settlements.emplace_back();
    for (const auto& item : *items)
      batch.push_back({.sequence = item.sequence, .outcome = Outcome::kAcknowledged});
    after = items->back().sequence;
  }
  const double start = cpu_seconds();
  for (auto& batch : settlements) {
    const std::uint64_t cursor = batch.back().sequence;
    (*journal)->settle(*sink, std::move(batch), cursor);
    std::this_thread::sleep_for(
        milliseconds(12));  // as at 40,000 a second: some share a commit, not all
  }
  (*journal)->flush(far);
  const double settling = cpu_seconds() - start;
  std::printf(
      "  parts, in CPU an event of %zu bytes: reading it from the journal %.1f us, making its JSON "
      "%.1f us, settling and "
      "removing "
      "it %.1f us\n",
      length / static_cast<std::size_t>(count), reading / count * 1e6, rendering / count * 1e6,
      settling / count * 1e6);
  std::fflush(stdout);
}

std::string fresh_name(std::string_view what) {
  static int number = 0;
  return "bench-" + std::string(what) + "-" + std::to_string(::getpid()) + "-" +
         std::to_string(++number);
}

std::vector<Message> render(int count, std::size_t bytes) {
  std::vector<Message> messages;
  messages.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const auto event = make_job_of(i, bytes, system_clock().now());
    messages.push_back({.key = event->cluster + "/" + event->job.id,
                        .value = event_json(*event),
                        .headers = {{"content-type", "application/json"},
                                    {"schema", "scriptorium.event/1"},
                                    {"event-id", event->id}},
                        .timestamp_ms = event->time.nanoseconds / 1'000'000});
  }
  return messages;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_row(const char* what, const std::vector<Measured>& rounds,
               const std::vector<Measured>& bounded, const std::vector<Measured>& unbounded) {
  std::vector<double> rate, cpu, of_bounded, of_unbounded;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    rate.push_back(rounds[i].per_second);
    cpu.push_back(rounds[i].cpu_us);
    of_bounded.push_back(rounds[i].per_second / bounded[i].per_second);
    of_unbounded.push_back(rounds[i].per_second / unbounded[i].per_second);
  }
  const auto [least, most] = std::minmax_element(rate.begin(), rate.end());
  std::printf("  %-34s %8.0f /s (%.0f-%.0f) %6.1f us CPU   %.2f of bounded   %.2f of unbounded\n",
              what, median(rate), *least, *most, median(cpu), median(of_bounded),
              median(of_unbounded));
  std::fflush(stdout);
}

void compare(const std::string& brokers, int count, std::size_t bytes, int rounds, bool variants) {
  const auto messages = render(count, bytes);
  std::size_t total = 0;
  for (const auto& message : messages) total += message.value.size();
  std::printf("%d events of %zu bytes on average, %d rounds\n", count, total / messages.size(),
              rounds);
  const std::string one = fresh_name("one");
  const std::string three = fresh_name("three");
  create_topic(brokers, one, 1);
  create_topic(brokers, three, 3);
  for (const std::string& topic : {one, three})
    bare_loop(brokers, topic, messages, true);  // the broker warms up
  struct Way {
    std::string words;
    int workers = 0;
    const std::string* topic;
    std::vector<Measured> rounds;
    int handles = 1;
  };
  std::vector<Way> ways;
  ways.push_back({"librdkafka, one request at a time", 0, &one, {}});
  ways.push_back({"librdkafka, unbounded", -1, &one, {}});
  ways.push_back({"journal + dispatcher + sink", 1, &one, {}});
  if (variants) {
    for (const int workers : {1, 2, 4}) {
      for (const std::string* topic : {&one, &three}) {
        if (workers == 1 && topic == &one) continue;
        ways.push_back({"  workers = " + std::to_string(workers) +
                            ", partitions = " + (topic == &one ? "1" : "3"),
                        workers,
                        topic,
                        {}});
      }
    }
    ways.push_back({"  two handles, half the events each", 1, &one, {}, 2});
  }
  for (int round = 0; round < rounds; ++round) {
    // The order is turned, as a machine that warms up or is shared favours one side.
    for (std::size_t turn = 0; turn < ways.size(); ++turn) {
      Way& way = ways[(turn + static_cast<std::size_t>(round)) % ways.size()];
      way.rounds.push_back(
          way.workers > 0
              ? through_the_sink(brokers, *way.topic, count, bytes, way.workers, way.handles)
              : bare_loop(brokers, *way.topic, messages, way.workers == 0));
    }
  }
  for (const Way& way : ways)
    print_row(way.words.c_str(), way.rounds, ways[0].rounds, ways[1].rounds);
}

// What the process burns while its messages cannot go: `stall` begins it, `heal` ends it, all must
// then be reported.
template <typename Stall, typename Heal>
void stalled(const char* what, const std::string& brokers, const std::string& topic, Stall stall,
             Heal heal) {
  constexpr int kWaiting = 5000;
  constexpr auto kTime = seconds(20);
  Pipeline pipeline(brokers, topic, 1);
  pipeline.append(make_job_of(-1, 2048, system_clock().now()));
  pipeline.start();
  const bool connected = stall(pipeline);
  for (int i = 0; i < kWaiting; ++i) pipeline.append(make_job_of(i, 2048, system_clock().now()));
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
  Pipeline pipeline(brokers, topic, 1, true);
  pipeline.append(make_job_of(-1, 6144, system_clock().now()));
  pipeline.start();
  pipeline.wait(1);
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_seconds();
  for (int i = 0; i < kPerSecond * kSeconds; ++i) {
    std::this_thread::sleep_until(
        start + std::chrono::microseconds(std::int64_t{1'000'000} * i / kPerSecond));
    pipeline.append(make_job_of(i, 6144, system_clock().now()));
  }
  pipeline.wait(kPerSecond * kSeconds + 1);
  const double busy = cpu_seconds() - cpu;
  auto taken = pipeline.sink().milliseconds_taken();
  taken.erase(taken.begin());  // the first message of the handle
  std::sort(taken.begin(), taken.end());
  const auto at = [&](double part) {
    return taken[static_cast<std::size_t>(part * static_cast<double>(taken.size() - 1))];
  };
  std::printf(
      "capture to delivery report at %d events of 6 KB a second, %d s: p50 %.1f ms, p90 %.1f, p99 "
      "%.1f, p99.9 %.1f, max %.1f; "
      "%.0f us CPU an event (making it included)\n",
      kPerSecond, kSeconds, at(0.5), at(0.9), at(0.99), at(0.999), taken.back(),
      busy / (kPerSecond * kSeconds) * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  std::string brokers;
  std::string only;
  pid_t broker_pid = 0;
  int messages = 60'000;
  int rounds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--pid" && more) {
      broker_pid = std::atoi(argv[++i]);
    } else if (word == "--messages" && more) {
      messages = std::atoi(argv[++i]);
    } else if (word == "--rounds" && more) {
      rounds = std::atoi(argv[++i]);
    } else if (word == "--only" && more) {
      only = argv[++i];
    } else if (!word.starts_with("-") && brokers.empty()) {
      brokers = word;
    } else {
      brokers.clear();
      break;
    }
  }
  if (brokers.empty() || messages < 1000 || rounds < 1) {
    std::fprintf(stderr,
                 "usage: kafka_bench BROKERS [--pid N] [--messages N] [--rounds N] [--only "
                 "loops|parts|variants|stalls|latency]\n");
    return 64;
  }
  std::printf("librdkafka %s\n", rd_kafka_version_str());
  const auto wanted = [&](std::string_view part) { return only.empty() || only == part; };
  for (const auto& [count, bytes] :
       {std::pair<int, std::size_t>(messages, 2048), {messages / 5, 16384}}) {
    if (wanted("loops") || wanted("variants"))
      compare(brokers, count, bytes, rounds, wanted("variants"));
    if (wanted("loops") || wanted("parts")) print_parts(count, bytes);
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

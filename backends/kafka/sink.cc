#include "backends/kafka/sink.h"

#include <algorithm>
#include <utility>

#include "backends/kafka/probe.h"
#include "backends/kafka/topic_setup.h"
#include "core/base/thread_name.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::seconds;

constexpr seconds kProbeLimit{10};  // of check()
constexpr seconds kSetupLimit{60};  // of setup(), for each topic

}  // namespace

KafkaSink::KafkaSink(KafkaConfig config, const PluginContext& context)
    : config_(std::move(config)),
      name_(context.name),
      cluster_(context.cluster),
      clock_(context.clock),
      formatter_(config_),
      reporter_(config_, name_, context.log, clock_),
      sender_(config_, formatter_, clock_, reporter_, inbox_) {}

KafkaSink::~KafkaSink() { KafkaSink::stop(clock_.steady()); }

Result<std::unique_ptr<KafkaSink>> KafkaSink::create(KafkaConfig config,
                                                     const PluginContext& context) {
  if (auto readable = check_secrets(config); !readable) return readable.error();
  return std::unique_ptr<KafkaSink>(new KafkaSink(std::move(config), context));
}

std::vector<std::string> KafkaSink::topics_of(const std::vector<std::string>& kinds) const {
  std::vector<std::string> topics;
  for (const std::string& kind : kinds) {
    std::string topic = formatter_.topic(cluster_, kind, "");
    if (std::ranges::find(topics, topic) == topics.end()) topics.push_back(std::move(topic));
  }
  return topics;
}

Result<void> KafkaSink::check() {
  const bool known = !config_.topic_template.uses("scheduler") &&
                     !(config_.topic_template.uses("kind") && config_.kinds.empty());
  const std::vector<std::string> any{"job.script"};
  const auto topics =
      known ? topics_of(config_.kinds.empty() ? any : config_.kinds) : std::vector<std::string>{};
  if (auto good = probe(config_, clock_, topics, kProbeLimit); !good) return good.error();
  for (const std::string& topic : topics) {
    if (auto good = check_policy(config_, clock_, topic, kProbeLimit); !good) return good.error();
  }
  return {};
}

Result<std::string> KafkaSink::setup(bool print) {
  std::string text;
  if (config_.topic_template.uses("scheduler") ||
      (config_.topic_template.uses("kind") && config_.kinds.empty())) {
    // Which these are is known only when events come.
    return "# one topic for each that \"" + config_.topic + "\" makes:\n" +
           create_command(config_, "TOPIC") + "\n";
  }
  for (const std::string& topic :
       topics_of(config_.kinds.empty() ? std::vector<std::string>{"job.script"} : config_.kinds)) {
    if (print) {
      text += create_command(config_, topic) + "\n";
      continue;
    }
    auto done = set_up_topic(config_, clock_, topic, kSetupLimit);
    if (!done) return done.error();
    text += *done;
  }
  return text;
}

Result<void> KafkaSink::start() {
  if (thread_.joinable()) return {};
  if (auto made = sender_.make_producer(); !made) return made.error();
  reporter_.check_settings();
  inbox_.open();
  thread_ = std::jthread([this] {
    name_thread("kafka", name_);
    sender_.run();
  });
  return {};
}

void KafkaSink::deliver(std::vector<Delivery> batch) {
  constexpr std::size_t kPortion = 250'000;
  std::vector<Item> items;
  std::size_t bytes = 0;
  for (Delivery& delivery : batch) {
    if (!formatter_.has_a_message(delivery.event())) {
      reporter_.update([](Status& s) { ++s.left_out; });
      delivery.acknowledge();
      continue;
    }
    Message message = formatter_.render(delivery.event());
    const std::size_t size = message.size();
    // The first of many are on their way while the others are made.
    if (bytes + size > kPortion) {
      pass_on(items);
      bytes = 0;
    }
    bytes += size;
    items.push_back({.delivery = std::move(delivery), .message = std::move(message), .size = size});
  }
  pass_on(items);
}

void KafkaSink::pass_on(std::vector<Item>& items) {
  if (items.empty() || inbox_.put(items)) return;
  for (Item& item : items) item.delivery.retry("the sink is not running");
  items.clear();
}

void KafkaSink::stop(SteadyTime deadline) {
  if (!thread_.joinable()) return sender_.drop_producer();
  inbox_.close(deadline);
  thread_.join();
  // Of a deliver() that was still making messages.
  for (Item& item : inbox_.take().items) item.delivery.retry("stopped before the broker answered");
}

std::string KafkaSink::status_json() const {
  Status status = reporter_.status();
  status.waiting += inbox_.size();
  return kafka::status_json(status, clock_.steady());
}

}  // namespace scriptorium::kafka

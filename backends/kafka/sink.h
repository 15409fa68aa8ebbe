#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/kafka/config.h"
#include "backends/kafka/format.h"
#include "backends/kafka/reporter.h"
#include "backends/kafka/sender.h"
#include "core/api/kit/inbox.h"
#include "core/api/sink.h"

namespace scriptorium::kafka {

// One message an event. Acknowledged means: the delivery report of this very message came without
// an error, at acks=all.
//
// deliver() makes messages of the events, in its caller's thread, and leaves them to a thread of
// the sink, which alone uses the producer (Sender).
//
// Owns:    the thread; deliveries from deliver() until they are settled. Nothing but core's batches
//          bounds them.
// Threads: as Sink says, with any number of workers.
class KafkaSink final : public Sink {
 public:
  // `config` must have passed parse_config(). kInvalidConfig if a secret cannot be read.
  static Result<std::unique_ptr<KafkaSink>> create(KafkaConfig config,
                                                   const PluginContext& context);
  ~KafkaSink() override;

  Result<void> check() override;
  Result<void> start() override;
  void deliver(std::vector<Delivery> batch) override;
  void stop(SteadyTime deadline) override;
  Result<std::string> setup(bool print) override;
  std::string status_json() const override;
  // One that is being sent, one that is being made into messages and one that is being read.
  std::size_t batches_under_way() const override { return 3; }

 private:
  KafkaSink(KafkaConfig config, const PluginContext& context);

  // The topics of events of these kinds, each once, as far as the scheduler has no part in them.
  std::vector<std::string> topics_of(const std::vector<std::string>& kinds) const;
  void pass_on(std::vector<Item>& items);

  const KafkaConfig config_;
  const std::string name_;
  const std::string cluster_;
  const Clock& clock_;
  const Formatter formatter_;
  Reporter reporter_;
  Inbox<Item> inbox_;
  Sender sender_;
  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace scriptorium::kafka

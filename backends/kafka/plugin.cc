#include "core/api/plugin.h"

#include <memory>

#include "backends/kafka/config.h"
#include "backends/kafka/sink.h"

namespace scriptorium::kafka {
namespace {

void check(const Table& table, Problems& problems) {
  static_cast<void>(parse_config(table, problems));
}

Result<std::unique_ptr<Sink>> create(const Table& table, const PluginContext& context) {
  Problems problems;
  KafkaConfig config = parse_config(table, problems);
  if (!problems.empty()) return Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  auto sink = KafkaSink::create(std::move(config), context);
  if (!sink) return sink.error();
  return std::unique_ptr<Sink>(*std::move(sink));
}

}  // namespace
}  // namespace scriptorium::kafka

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "kafka",
    .summary =
        "one message an event on a Kafka topic: the event as JSON, as SArchive's consumers read "
        "it, or as a CloudEvent",
    .options = &scriptorium::kafka::options,
    .check = &scriptorium::kafka::check,
    .create_sink = &scriptorium::kafka::create,
};

#include "backends/kafka/config.h"
#include "backends/kafka/sink.h"
#include "core/api/kit/descriptor.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::sink_plugin<scriptorium::kafka::KafkaSink, &scriptorium::kafka::options,
                             &scriptorium::kafka::parse_config>(
        "kafka",
        "one message per event on a Kafka topic: the event as JSON, as SArchive's consumers read "
        "it, or as a CloudEvent");

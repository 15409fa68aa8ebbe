#include "backends/stdout/config.h"
#include "backends/stdout/sink.h"
#include "core/api/kit/descriptor.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::sink_plugin<scriptorium::stdout_sink::StdoutSink,
                             &scriptorium::stdout_sink::options,
                             &scriptorium::stdout_sink::parse_config>(
        "stdout", "one event per line, as JSON, on standard output");

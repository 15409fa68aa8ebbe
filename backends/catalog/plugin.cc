#include "backends/catalog/config.h"
#include "backends/catalog/sink.h"
#include "core/api/kit/descriptor.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::sink_plugin<scriptorium::catalog::CatalogSink, &scriptorium::catalog::options,
                             &scriptorium::catalog::parse_config>(
        "catalog",
        "a searchable, compressed archive of every job on this machine, without any server");

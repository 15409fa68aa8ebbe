#include "backends/elasticsearch/config.h"
#include "backends/elasticsearch/sink.h"
#include "core/api/kit/descriptor.h"

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::sink_plugin<scriptorium::elasticsearch::ElasticsearchSink,
                             &scriptorium::elasticsearch::options,
                             &scriptorium::elasticsearch::parse_config>(
        "elasticsearch",
        "one document per event in Elasticsearch or OpenSearch, for searching in Kibana or "
        "Dashboards");

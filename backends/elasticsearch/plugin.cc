#include "core/api/plugin.h"

#include "backends/elasticsearch/config.h"
#include "backends/elasticsearch/sink.h"

namespace scriptorium::elasticsearch {
namespace {

void check(const Table& table, Problems& problems) {
  static_cast<void>(parse_config(table, problems));
}

Result<std::unique_ptr<Sink>> create(const Table& table, const PluginContext& context) {
  Problems problems;
  ElasticsearchConfig config = parse_config(table, problems);
  if (!problems.empty()) return Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  auto sink = ElasticsearchSink::create(std::move(config), context);
  if (!sink) return sink.error();
  return std::unique_ptr<Sink>(*std::move(sink));
}

}  // namespace
}  // namespace scriptorium::elasticsearch

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "elasticsearch",
    .summary = "documents in Elasticsearch or OpenSearch, to be searched in Kibana or Dashboards",
    .options = &scriptorium::elasticsearch::options,
    .check = &scriptorium::elasticsearch::check,
    .create_sink = &scriptorium::elasticsearch::create,
};

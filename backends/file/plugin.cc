#include "core/api/plugin.h"
#include "backends/file/config.h"
#include "backends/file/sink.h"

namespace scriptorium::file {
namespace {

void check(const Table& table, Problems& problems) {
  static_cast<void>(parse_config(table, problems));
}

Result<std::unique_ptr<Sink>> create(const Table& table, const PluginContext& context) {
  Problems problems;
  FileConfig config = parse_config(table, problems);
  if (!problems.empty()) return Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  auto sink = FileSink::create(std::move(config), context);
  if (!sink) return sink.error();
  return std::unique_ptr<Sink>(*std::move(sink));
}

}  // namespace
}  // namespace scriptorium::file

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "file",
    .summary =
        "a tree of files: script, environment and metadata of each job, readable by its owner",
    .options = &scriptorium::file::options,
    .check = &scriptorium::file::check,
    .create_sink = &scriptorium::file::create,
};

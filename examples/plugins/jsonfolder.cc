// The smallest sink that keeps something: one JSON file an event, FOLDER/ID.json.
//
//   [sink.copy]
//   plugin = "jsonfolder"
//   folder = "/srv/events"
#include <string>
#include <vector>

#include "core/api/kit/descriptor.h"
#include "core/base/file.h"

using namespace scriptorium;

namespace {

struct Config {
  std::string folder;
};

const Schema<Config>& schema() {
  static const Schema<Config> kSchema{
      required("folder", &Config::folder,
               "Where the files go; a folder that is there, an absolute path."),
  };
  return kSchema;
}

class JsonFolder final : public Sink {
 public:
  explicit JsonFolder(Config config) : config_(std::move(config)) {}

  // For `scriptorium check`: leaves nothing behind.
  Result<void> check() override {
    const auto stat = stat_path(config_.folder);
    if (!stat) return stat.error();
    if (!stat->is_directory())
      return Error{ErrorKind::kInvalidConfig, config_.folder + " is not a folder; name another"};
    return {};
  }

  void deliver(std::vector<Delivery> batch) override {
    for (Delivery& delivery : batch) {
      // The id never changes, so a second delivery of the same event writes the same file once
      // more.
      const std::string file = config_.folder + "/" + delivery.event().id + ".json";
      // Returns when a power cut would not take the file away: only then it may be acknowledged.
      if (auto written = replace_file(file, event_json(delivery.event()) + "\n", 0600); written) {
        delivery.acknowledge();
      } else {
        // A full or missing disk may come back, so the event is not at fault.
        delivery.retry(written.error().message());
      }
    }
  }

 private:
  const Config config_;
};

std::vector<OptionInfo> options() { return schema().options(); }

Config read_config(const Table& table, Problems& problems) {
  Config config = schema().parse(table, problems);
  if (!config.folder.empty() && config.folder.front() != '/')
    problems.add(table, "folder", "not an absolute path");
  return config;
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const PluginDescriptor scriptorium_plugin =
    sink_plugin<JsonFolder, &options, &read_config>("jsonfolder",
                                                    "one JSON file an event, in a folder");

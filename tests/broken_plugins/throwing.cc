// A sink that throws at each batch with a job whose id contains "poison"; what stood before it in
// the batch is acknowledged already. Option `file`: gets the event id of every acknowledged event,
// one a line.
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/broken_plugins/plain_sink.h"

namespace {

struct ThrowingConfig {
  std::string file;
};

const scriptorium::Schema<ThrowingConfig>& schema() {
  static const scriptorium::Schema<ThrowingConfig> the_schema{
      scriptorium::option("file", &ThrowingConfig::file, "gets the id of every acknowledged event"),
  };
  return the_schema;
}

class ThrowingSink : public scriptorium::Sink {
 public:
  explicit ThrowingSink(ThrowingConfig config) : config_(std::move(config)) {}

  void deliver(std::vector<scriptorium::Delivery> batch) override {
    for (scriptorium::Delivery& delivery : batch) {
      if (delivery.event().job.id.find("poison") != std::string::npos)
        throw std::runtime_error("poisoned");
      if (config_.file.empty()) {
        delivery.acknowledge();
      } else {
        scriptorium::broken::note_and_acknowledge(config_.file, delivery.event().id, delivery);
      }
    }
  }

 private:
  ThrowingConfig config_;
};

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::broken::describe<&schema, ThrowingSink>(
        "throwing", "throws at jobs whose id contains \"poison\"");

// A sink that throws at each batch with a job whose id contains "poison"; what stood before it in
// the batch is acknowledged already. Option `file`: gets the event id of every acknowledged event,
// one a line.
#include <fcntl.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/file.h"
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
      if (auto noted = note(delivery.event().id); !noted) {
        delivery.retry(noted.error().message());
      } else {
        delivery.acknowledge();
      }
    }
  }

 private:
  scriptorium::Result<void> note(const std::string& id) const {
    if (config_.file.empty()) return {};
    const scriptorium::UniqueFd fd{
        ::open(config_.file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)};
    if (!fd) return scriptorium::system_error("open " + config_.file, errno);
    return scriptorium::write_fd(fd.get(), id + "\n");
  }

  ThrowingConfig config_;
};

std::vector<scriptorium::OptionInfo> options() { return schema().options(); }
void check(const scriptorium::Table& table, scriptorium::Problems& problems) {
  schema().parse(table, problems);
}
scriptorium::Result<std::unique_ptr<scriptorium::Sink>> create(const scriptorium::Table& table,
                                                               const scriptorium::PluginContext&) {
  scriptorium::Problems problems;
  return std::unique_ptr<scriptorium::Sink>(new ThrowingSink(schema().parse(table, problems)));
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "throwing",
    .summary = "throws at jobs whose id contains \"poison\"",
    .options = &options,
    .check = &check,
    .create_sink = &create,
};

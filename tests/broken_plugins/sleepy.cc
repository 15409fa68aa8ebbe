// A sink that blocks in the call of its option `at` until the file of its option `file` exists,
// whatever stop() may want.
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/file.h"
#include "tests/broken_plugins/plain_sink.h"

namespace {

struct SleepyConfig {
  std::string file;
  std::string at = "deliver";
};

const scriptorium::Schema<SleepyConfig>& schema() {
  static const scriptorium::Schema<SleepyConfig> the_schema{
      scriptorium::required("file", &SleepyConfig::file,
                            "the call waits until this file exists; its folder must"),
      scriptorium::option("at", &SleepyConfig::at, "the call that waits"),
  };
  return the_schema;
}

scriptorium::Result<void> wait_for_file(const std::string& file) {
  const scriptorium::UniqueFd notify{::inotify_init1(IN_CLOEXEC)};
  if (!notify) return scriptorium::system_error("inotify_init1", errno);
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  if (::inotify_add_watch(notify.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    return scriptorium::system_error("watch " + folder, errno);
  }
  while (::access(file.c_str(), F_OK) != 0) {  // after the watch stands, so that none is missed
    alignas(inotify_event) char events[4096];
    if (::read(notify.get(), events, sizeof events) < 0 && errno != EINTR)
      return scriptorium::system_error("read inotify", errno);
  }
  return {};
}

class SleepySink : public scriptorium::broken::PlainSink {
 public:
  explicit SleepySink(SleepyConfig config) : config_(std::move(config)) {}

  scriptorium::Result<void> check() override { return sleep_at("check"); }
  scriptorium::Result<void> start() override { return sleep_at("start"); }
  void deliver(std::vector<scriptorium::Delivery> batch) override {
    if (auto waited = sleep_at("deliver"); !waited) {
      for (scriptorium::Delivery& delivery : batch) delivery.retry(waited.error().message());
      return;
    }
    PlainSink::deliver(std::move(batch));
  }

 private:
  scriptorium::Result<void> sleep_at(std::string_view call) const {
    return call == config_.at ? wait_for_file(config_.file) : scriptorium::Result<void>{};
  }

  SleepyConfig config_;
};

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::broken::describe<&schema, SleepySink>("sleepy", "blocks until a file appears");

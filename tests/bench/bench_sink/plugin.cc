// A sink for the bench. It notes for each job when it was handed over, which core does only after
// the journal's commit: so that time is an upper bound of when the event was durable. With `down =
// true` it is a destination that is away. The file gets one line a job: ID TIME-IN-NS.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/api/options.h"
#include "core/api/plugin.h"
#include "core/api/sink.h"
#include "core/base/file.h"

namespace scriptorium::bench {
namespace {

struct BenchConfig {
  std::string file;
  bool down = false;
};

const Schema<BenchConfig>& schema() {
  static const Schema<BenchConfig> kSchema{
      option("file", &BenchConfig::file, "gets a line for each job; empty: none"),
      option("down", &BenchConfig::down, "answer every delivery with retry"),
  };
  return kSchema;
}

class BenchSink final : public Sink {
 public:
  explicit BenchSink(BenchConfig config) : config_(std::move(config)) {}

  Result<void> start() override {
    if (config_.file.empty()) return {};
    file_.reset(::open(config_.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!file_) return Error{ErrorKind::kInvalidConfig, "cannot write " + config_.file};
    return {};
  }

  void deliver(std::vector<Delivery> batch) override {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    std::string lines;
    const std::string time =
        " " + std::to_string(now.tv_sec * 1'000'000'000LL + now.tv_nsec) + "\n";
    for (Delivery& delivery : batch) {
      if (config_.down) {
        delivery.retry("down, as configured");
        continue;
      }
      lines.append(delivery.event().job.id).append(time);
      delivery.acknowledge();
    }
    if (file_ &&
        ::write(file_.get(), lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
      file_.reset();
  }

 private:
  const BenchConfig config_;
  UniqueFd file_;
};

std::vector<OptionInfo> options() { return schema().options(); }
void check(const Table& table, Problems& problems) {
  static_cast<void>(schema().parse(table, problems));
}

Result<std::unique_ptr<Sink>> create(const Table& table, const PluginContext&) {
  Problems problems;
  BenchConfig config = schema().parse(table, problems);
  if (!problems.empty()) return Error{ErrorKind::kInvalidConfig, problems.list().front().text()};
  return std::unique_ptr<Sink>(std::make_unique<BenchSink>(std::move(config)));
}

}  // namespace
}  // namespace scriptorium::bench

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "bench_sink",
    .summary = "notes when each job was handed over",
    .options = &scriptorium::bench::options,
    .check = &scriptorium::bench::check,
    .create_sink = &scriptorium::bench::create,
};

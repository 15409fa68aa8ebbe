// A sink that throws an int, which is not a std::exception, in the call that its option `at` names.
#include <string>
#include <utility>

#include "tests/broken_plugins/plain_sink.h"

namespace {

using namespace scriptorium;

struct OddConfig {
  std::string at;
};

const Schema<OddConfig>& schema() {
  static const Schema<OddConfig> the_schema{option("at", &OddConfig::at, "the call that throws")};
  return the_schema;
}

class OddSink : public Sink {
 public:
  explicit OddSink(OddConfig config) : at_(std::move(config.at)) { odd("create"); }

  Result<void> check() override { return odd("check"), Result<void>{}; }
  Result<void> start() override { return odd("start"), Result<void>{}; }
  void deliver(std::vector<Delivery> batch) override {
    odd("deliver");
    for (Delivery& delivery : batch) delivery.acknowledge();
  }
  void stop(SteadyTime) override { odd("stop"); }
  Result<std::vector<StoredJob>> find(std::string_view) override {
    return odd("find"), std::vector<StoredJob>{};
  }
  Result<std::string> setup(bool) override { return odd("setup"), std::string{}; }
  std::string status_json() const override { return odd("status_json"), std::string{}; }
  std::size_t batches_under_way() const override { return odd("batches_under_way"), 1; }

 private:
  void odd(std::string_view call) const {
    if (call == at_) throw 1;
  }

  std::string at_;
};

void check(const Table& table, Problems& problems) {
  if (schema().parse(table, problems).at == "options") throw 1;
}

constexpr PluginDescriptor describe_odd_sink() {
  auto descriptor =
      broken::describe<&schema, OddSink>("odd_sink", "throws an int in the call named by `at`");
  descriptor.check = &check;
  return descriptor;
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    describe_odd_sink();

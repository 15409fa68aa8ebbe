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
  explicit OddSink(std::string at) : at_(std::move(at)) {}

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
std::vector<OptionInfo> options() { return schema().options(); }
Result<std::unique_ptr<Sink>> create(const Table& table, const PluginContext&) {
  Problems problems;
  std::string at = schema().parse(table, problems).at;
  if (at == "create") throw 1;
  return std::unique_ptr<Sink>(new OddSink(std::move(at)));
}

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "odd_sink",
    .summary = "throws an int in the call named by `at`",
    .options = &options,
    .check = &check,
    .create_sink = &create,
};

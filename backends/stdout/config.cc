#include "backends/stdout/config.h"

namespace scriptorium::stdout_sink {
namespace {

const Schema<StdoutConfig>& schema() {
  static const Schema<StdoutConfig> kSchema{
      option("script_text", &StdoutConfig::script_text,
             "include the job script's text in each event"),
      option("environment", &StdoutConfig::environment,
             "include the environment variables in each event"),
  };
  return kSchema;
}

}  // namespace

std::vector<OptionInfo> options() { return schema().options(); }
StdoutConfig parse_config(const Table& table, Problems& problems) {
  return schema().parse(table, problems);
}

}  // namespace scriptorium::stdout_sink

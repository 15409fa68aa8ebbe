#include "schedulers/replay/source.h"
#include "schedulers/slurm/source.h"
#include "tests/contract/source_contract.h"

namespace scriptorium::test {

using namespace std::string_literals;

const std::vector<SourceCase>& source_cases() {
  static const std::vector<SourceCase> cases = {
      {"slurm",
       [](const std::string& root, const SourceContext& context) -> std::unique_ptr<SpoolAdapter> {
         slurm::SlurmConfig config;
         config.spool = root;
         return std::make_unique<slurm::SlurmSource>(config, context);
       },
       [](int number, std::string_view script) {
         const std::string entry = "hash." + std::to_string(number % 10) + "/job." + std::to_string(number);
         return std::vector<std::pair<std::string, std::string>>{{entry + "/environment", "\x02\0\0\0A=1\0B=two words\0"s},
                                                                 {entry + "/script", std::string(script) + '\0'}};
       }},
      {"replay",
       [](const std::string& root, const SourceContext& /*context*/) -> std::unique_ptr<SpoolAdapter> {
         replay::ReplayConfig config;
         config.folder = root;
         return std::make_unique<replay::ReplaySource>(config);
       },
       [](int number, std::string_view script) {
         const std::string entry = std::to_string(number);
         return std::vector<std::pair<std::string, std::string>>{{entry + "/environment", "A=1\0B=two words\0"s},
                                                                 {entry + "/script", std::string(script)}};
       }},
  };
  return cases;
}

}  // namespace scriptorium::test

#include "schedulers/replay/source.h"
#include "schedulers/slurm/source.h"
#include "schedulers/torque/source.h"
#include "tests/contract/source_contract.h"

namespace scriptorium::test {

using namespace std::string_literals;

const std::vector<SourceCase>& source_cases() {
  static const std::vector<SourceCase> cases = {
      {"slurm",
       [](const std::string& root, const PluginContext& context) -> std::unique_ptr<SpoolAdapter> {
         slurm::SlurmConfig config;
         config.spool = root;
         return std::make_unique<slurm::SlurmSource>(config, context);
       },
       [](int number, std::string_view script) {
         const std::string entry =
             "hash." + std::to_string(number % 10) + "/job." + std::to_string(number);
         return std::vector<std::pair<std::string, std::string>>{
             {entry + "/environment", "\x02\0\0\0A=1\0B=two words\0"s},
             {entry + "/script", std::string(script) + '\0'}};
       }},
      {"torque",
       [](const std::string& root, const PluginContext& context) -> std::unique_ptr<SpoolAdapter> {
         return std::make_unique<torque::TorqueSource>(torque::TorqueConfig{root}, context);
       },
       [](int number, std::string_view script) {
         const std::string stem = std::to_string(number) + ".host";
         const std::string record =
             "<?xml version=\"1.0\"?>\n<job>\n  <jobid>" + stem + "</jobid>\n  <fileprefix>" +
             stem +
             "</fileprefix>\n  <attributes>\n    <Job_Owner flags=\"1\">carol@host</Job_Owner>\n"
             "    <Variable_List flags=\"1\">A=1,B=two words</Variable_List>\n  "
             "</attributes>\n</job>\n";
         return std::vector<std::pair<std::string, std::string>>{
             {stem + ".SC", std::string(script)}, {stem + ".JB", record}};
       },
       "jobs"},
      {"replay",
       [](const std::string& root,
          const PluginContext& /*context*/) -> std::unique_ptr<SpoolAdapter> {
         replay::ReplayConfig config;
         config.folder = root;
         return std::make_unique<replay::ReplaySource>(config);
       },
       [](int number, std::string_view script) {
         const std::string entry = std::to_string(number);
         return std::vector<std::pair<std::string, std::string>>{
             {entry + "/environment", "A=1\0B=two words\0"s},
             {entry + "/script", std::string(script)}};
       }},
  };
  return cases;
}

}  // namespace scriptorium::test

#include "schedulers/torque/config.h"

#include <string_view>

namespace scriptorium::torque {
namespace {

using namespace std::literals;

constexpr std::string_view kPrivate = "/server_priv";
constexpr std::string_view kJobs = "/jobs";

const Schema<TorqueConfig>& schema() {
  static const Schema<TorqueConfig> the_schema{
      required("spool", &TorqueConfig::spool,
               "pbs_server's home, such as /var/spool/torque; its server_priv or server_priv/jobs "
               "will do as well. An absolute "
               "path."),
  };
  return the_schema;
}

std::string without_final_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

std::vector<OptionInfo> describe() { return schema().options(); }

TorqueConfig read_config(const Table& table, Problems& problems) {
  TorqueConfig config = schema().parse(table, problems);
  const Value* given = table.find("spool");
  // A value of another type was reported already and left its member empty.
  if (given == nullptr || !std::holds_alternative<std::string>(given->data)) return config;
  if (config.spool.empty() || config.spool.front() != '/') {
    problems.add(table, "spool", "not an absolute path", "a path that begins with '/'");
  } else if (config.spool.find('\0') != std::string::npos) {
    problems.add(table, "spool", "a path cannot hold a NUL byte");
  }
  config.spool = without_final_slashes(std::move(config.spool));
  return config;
}

std::string jobs_folder(const std::string& spool) {
  if (spool.ends_with(kJobs)) return spool;
  return home_folder(spool).append(kPrivate).append(kJobs);
}

std::string home_folder(const std::string& spool) {
  std::string_view home = spool;
  if (home.ends_with(kJobs)) home.remove_suffix(kJobs.size());
  if (home.ends_with(kPrivate)) home.remove_suffix(kPrivate.size());
  return std::string(home);
}

}  // namespace scriptorium::torque

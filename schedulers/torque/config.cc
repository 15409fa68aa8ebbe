#include "schedulers/torque/config.h"

#include <string_view>

#include "core/api/kit/path_option.h"

namespace scriptorium::torque {
namespace {

using namespace std::literals;

constexpr std::string_view kPrivate = "/server_priv";
constexpr std::string_view kJobs = "/jobs";

const Schema<TorqueConfig>& schema() {
  static const Schema<TorqueConfig> the_schema{
      required("spool", &TorqueConfig::spool,
               "pbs_server's home, such as /var/spool/torque, or its server_priv or "
               "server_priv/jobs; an absolute path."),
  };
  return the_schema;
}

}  // namespace

std::vector<OptionInfo> describe() { return schema().options(); }

TorqueConfig read_config(const Table& table, Problems& problems) {
  TorqueConfig config = schema().parse(table, problems);
  check_absolute_path(table, "spool", problems);
  drop_final_slashes(config.spool);
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

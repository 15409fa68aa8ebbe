#include "core/daemon/reload.h"

#include <algorithm>

namespace scriptorium {

std::optional<std::string> changed_fixed_key(const CoreConfig& running, const CoreConfig& wanted) {
  std::optional<std::string> changed;
  const auto compare = [&](const char* key, auto CoreConfig::* member) {
    if (!changed && running.*member != wanted.*member) changed = key;
  };
  compare("cluster", &CoreConfig::cluster);
  compare("state_dir", &CoreConfig::state_dir);
  compare("host", &CoreConfig::host);
  compare("user", &CoreConfig::user);
  compare("journal_max_bytes", &CoreConfig::journal_max_bytes);
  compare("user_share_percent", &CoreConfig::user_share_percent);
  compare("metrics_listen", &CoreConfig::metrics_listen);
  compare("metrics_socket", &CoreConfig::metrics_socket);
  compare("metrics_textfile", &CoreConfig::metrics_textfile);
  return changed;
}

std::set<std::string> unchanged_instances(const std::vector<InstanceVersion>& running,
                                          const std::vector<InstanceVersion>& wanted) {
  std::set<std::string> unchanged;
  for (const InstanceVersion& instance : wanted) {
    if (std::find(running.begin(), running.end(), instance) != running.end())
      unchanged.insert(instance.first);
  }
  return unchanged;
}

}  // namespace scriptorium

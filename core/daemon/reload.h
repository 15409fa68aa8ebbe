#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/config/config.h"

// What a reload changes. Pure.
namespace scriptorium {

// The first key of the core configuration that differs and needs a restart; nothing if there is
// none.
std::optional<std::string> changed_fixed_key(const CoreConfig& running, const CoreConfig& wanted);

// An instance of a source or sink: its name and what fingerprint() makes of its configuration.
using InstanceVersion = std::pair<std::string, std::string>;
// The names of those that keep running, since nothing of them has changed. Everything else that
// runs is stopped, everything else that is wanted is started.
std::set<std::string> unchanged_instances(const std::vector<InstanceVersion>& running,
                                          const std::vector<InstanceVersion>& wanted);

}  // namespace scriptorium

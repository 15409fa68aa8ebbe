#pragma once

#include <string>

#include "core/api/event.h"
#include "schedulers/usage/records.h"

// Records as events. Pure, but for the names of users, which the publisher adds.
namespace scriptorium::usage {

// Ids are over what names the measurement, not over what was measured: one that is made again after
// a crash, and may then know less, is the same event.
Event sample_event(const std::string& cluster, const UsageSample& sample);
Event node_event(const std::string& cluster, const NodeUsage& node);

}  // namespace scriptorium::usage

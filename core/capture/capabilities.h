#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace scriptorium {

// Linux capabilities, a bit each, numbered as in <linux/capability.h>.
using CapabilitySet = std::uint64_t;

constexpr CapabilitySet capability_bit(int number) { return CapabilitySet{1} << number; }
bool has_capability(CapabilitySet set, int number);

// What reaching a spool can use: CAP_SYS_ADMIN for fanotify, CAP_DAC_READ_SEARCH for files of
// others.
extern const CapabilitySet kSpoolCapabilities;

// Of the calling thread, which acts by them.
Result<CapabilitySet> effective_capabilities();

// No program that is started from here on gets a capability that it is not given; needs
// CAP_SETPCAP, and without it does nothing: a unit has CapabilityBoundingSet= for that.
Result<void> empty_bounding_set();

// Gives up, for good, every capability but `keep`: none is inheritable, ambient or (see above) in
// the bounding set, and no program that it starts gains any (no_new_privs). Fails if one of `keep`
// is not held. Threads: concerns the calling thread only, so call it while there is no other.
Result<void> keep_only_capabilities(CapabilitySet keep);

// "CAP_SYS_ADMIN", "CAP_31", ...: those that this program knows by name, the others by number.
std::vector<std::string> capability_names(CapabilitySet set);

}  // namespace scriptorium

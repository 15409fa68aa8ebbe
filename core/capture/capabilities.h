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

// The capabilities that help to reach a spool: CAP_SYS_ADMIN for fanotify, CAP_DAC_READ_SEARCH for
// files of other users.
extern const CapabilitySet kSpoolCapabilities;

// The calling thread's.
Result<CapabilitySet> effective_capabilities();

// Keeps programs that are started from here on from gaining capabilities. Needs CAP_SETPCAP, and
// does nothing without it: a unit has CapabilityBoundingSet= for that.
Result<void> empty_bounding_set();

// Gives up, for good, every capability except `keep`: none is inheritable, ambient or (see above)
// in the bounding set, and programs that it starts gain none (no_new_privs). Fails if one of `keep`
// is not held. Threads: affects the calling thread only, so call it while there is no other.
Result<void> keep_only_capabilities(CapabilitySet keep);

// "CAP_SYS_ADMIN", "CAP_31", ...: those that this program knows by name, the others by number.
std::vector<std::string> capability_names(CapabilitySet set);

}  // namespace scriptorium

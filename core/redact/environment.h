#pragma once

#include <cstdint>

#include "core/api/event.h"
#include "core/config/config.h"

// Removes the variables that a site does not want to keep from a job's environment, before anything
// reaches the disk. Pure functions; any thread.
namespace scriptorium {

struct FilteredEnvironment {
  Bytes bytes;                // null: keep nothing, not even the fact that there was an environment
  std::uint64_t dropped = 0;  // strings; for Event::redactions
};

// Redacts an environment of NUL-ended strings. Kept strings do not change; order, repeated names
// and strings without '=' are preserved. If nothing is dropped, the result shares the input's
// bytes. A string's name is the part before its first '=' after position 0, as in
// split_environment(); a string without '=' is its own name. Mode kNone returns null bytes, and so
// does null input. Takes time linear in the bytes times the length of the patterns.
FilteredEnvironment filter_environment(const Bytes& nul_ended, const EnvironmentRule& rule);

// Redacts an environment that could not be parsed (EnvironmentFormat::kRaw). Its bytes cannot be
// assigned to variables, so any rule but "all" drops it whole: null bytes, dropped = 1.
FilteredEnvironment filter_raw_environment(const Bytes& raw, const EnvironmentRule& rule);

}  // namespace scriptorium

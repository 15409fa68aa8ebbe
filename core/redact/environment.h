#pragma once

#include <cstdint>

#include "core/api/event.h"
#include "core/config/config.h"

// Takes out what a site does not want to keep of a job's environment, before anything reaches the
// disk. Pure functions; any thread.
namespace scriptorium {

struct FilteredEnvironment {
  Bytes bytes;                // null: nothing is to be kept, not even that there was one
  std::uint64_t dropped = 0;  // strings; for Event::redactions
};

// An environment of NUL-ended strings. What is kept stays byte for byte as it was: order, repeated
// names, strings without '='. If nothing is dropped the answer holds the very same bytes. A
// string's name is what precedes its first
// '=' after position 0, as in split_environment(); a string without one is its own name. Mode
// kNone: null bytes. Null in, null out. Time is linear in the bytes (times the length of the
// patterns).
FilteredEnvironment filter_environment(const Bytes& nul_ended, const EnvironmentRule& rule);

// An environment that could not be parsed (EnvironmentFormat::kRaw). Nobody can say which of its
// bytes belong to which variable, so any rule but "all" drops it whole: null bytes, dropped = 1.
FilteredEnvironment filter_raw_environment(const Bytes& raw, const EnvironmentRule& rule);

}  // namespace scriptorium

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/api/event.h"

namespace scriptorium::redact {

// Findings by rule, removed and only reported ones alike.
using Tally = std::map<std::string, std::uint64_t>;

inline void add(Tally& tally, const std::vector<Redaction>& redactions) {
  for (const Redaction& redaction : redactions) tally[redaction.rule] += redaction.count;
}
inline void add(Tally& tally, const Tally& more) {
  for (const auto& [rule, count] : more) tally[rule] += count;
}

}  // namespace scriptorium::redact

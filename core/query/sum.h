#pragma once

#include <cstdint>
#include <string>

#include "core/api/run_sum.h"

namespace scriptorium::query {

using Sum = RunSum;

std::string format_tenths(double value);                          // "3.0"
std::string hours_text(std::uint64_t seconds);                    // "1540.1"
std::string share_text(std::uint64_t part, std::uint64_t whole);  // "68 %"; "" of nothing
// How much more `now` is than `before`: "+29 %", "> 10 x", "new"; "" if both are nothing.
std::string trend_text(double now, double before);

}  // namespace scriptorium::query

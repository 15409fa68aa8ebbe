#pragma once

#include <string>
#include <vector>

#include "core/cli/command_model.h"

namespace scriptorium::cli {

// A query may hold words that look like options: "-gpu" (without this word), "--mem=16G" (a text).
// Returns the command line of `search` with its options first and the query behind "--", in order;
// any other command line as it is. A word with one '-' is an option only if it is exactly one
// ("-c", "-C", "-C2"); one with two if `search` has it or has one of nearly that name, so that a
// mistyped option is not searched for. Pure.
std::vector<std::string> query_words_last(const std::vector<std::string>& words,
                                          const CommandModel& root);

}  // namespace scriptorium::cli

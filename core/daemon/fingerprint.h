#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/api/options.h"

// Decisions of a start and a reload that look at the configuration and at files only.
namespace scriptorium {

// A text that stays the same as long as an instance's configuration means the same. The content of
// the files that its `..._file` options name counts too, so that an exchanged password or
// certificate is a change.
std::string fingerprint(const Table& table, const std::string& plugin_file,
                        const std::string& cluster, const std::string& host);

// The directories that each sink writes into, by the sink's name.
using SinkDirectories = std::vector<std::pair<std::string, std::vector<std::string>>>;
// Two sinks that would write into one another's directories: a sentence for each pair, empty if
// there is none. Links are followed, also above a directory that does not exist yet.
std::vector<std::string> shared_directories(const SinkDirectories& by_sink);

}  // namespace scriptorium

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/api/options.h"

// Reading the files of a configuration. Whatever is wrong becomes a problem that names the file.
namespace scriptorium {

inline constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 20;

// The file's text; nothing, with a problem reported, if it cannot be read, is no regular file or is
// larger than kMostConfigBytes. `remedy` is appended to the problem of a file that does not open.
std::optional<std::string> read_config_file(const std::string& file, const std::string& remedy,
                                            Problems& problems);

// The paths of the files *.toml of a folder in name order, without hidden ones; none if there is no
// such folder. `complete` becomes false, with a problem reported, if the folder cannot be listed.
std::vector<std::string> toml_files(const std::string& folder, Problems& problems, bool& complete);

}  // namespace scriptorium

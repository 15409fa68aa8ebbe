#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace scriptorium {

// At most `bytes` of a file from `offset` on; fewer at its end or where it cannot be read.
using ReadAt = std::function<std::string(std::uint64_t offset, std::size_t bytes)>;

// The build id that the linker wrote into an ELF file (NT_GNU_BUILD_ID), 1 to 64 bytes. Nothing for
// any other file, whatever its bytes. Any class and byte order. Reads at most a quarter of a
// mebibyte, in 18 reads.
std::optional<std::string> find_build_id(const ReadAt& read);

}  // namespace scriptorium

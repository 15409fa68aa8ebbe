#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/catalog/schema.h"
#include "backends/catalog/segments.h"
#include "core/base/result.h"

// Small blocks of a sealed segment become large ones, and what still waits there is packed.
namespace scriptorium::catalog {

// Contents of one owner and kind that become blocks together.
struct Source {
  bool pending = false;  // a row of `pending`, otherwise of `blocks`
  std::int64_t id = 0;
  std::int64_t raw = 0;
};
struct Regrouping {
  std::int64_t owner = 0;
  ContentKind kind = ContentKind::kScript;
  std::vector<Source> sources;
};

inline constexpr std::size_t kSealedBlockBytes = std::size_t{256} << 10;

// Neighbours of one owner and kind in a sealed segment, as many as make one block of
// kSealedBlockBytes.
Result<std::vector<Regrouping>> groups_to_regroup(Connection& db);

// Moves what is still used of the sources into new blocks of at most `most_bytes` (a larger content
// has its own), with their words, and removes the sources. Within the caller's transaction; an
// error is the connection's. A source that cannot be unpacked stays as it is and is returned.
std::vector<Source> regroup(Connection& db, const Regrouping& regrouping, std::size_t most_bytes);

}  // namespace scriptorium::catalog

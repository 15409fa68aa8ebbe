#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

// Whether a job had its nodes alone, which sacct does not say: it had all of their CPUs, and no
// partition lets jobs share CPUs. As sinfo says it now, so a node whose CPUs or partitions changed
// since the job may be judged wrongly. Pure.
namespace scriptorium::usage {

struct NodeSize {
  std::uint32_t cpus = 0;
  bool is_shared = false;  // OverSubscribe of one of its partitions is YES or FORCE
};
using NodeSizes = std::map<std::string, NodeSize, std::less<>>;

// Arguments of sinfo; `guard` ends each field.
std::vector<std::string> sinfo_arguments(const std::string& guard);

// kTransient if one row is not as Slurm writes it.
Result<NodeSizes> parse_sinfo(std::string_view answer, std::string_view guard);

// False also if one of the nodes, "n[1-3]", is not known.
bool had_alone(const NodeSizes& sizes, std::string_view node_list, std::uint32_t cpus);

}  // namespace scriptorium::usage

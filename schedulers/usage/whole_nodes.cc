#include "schedulers/usage/whole_nodes.h"

#include "core/base/number.h"
#include "schedulers/slurm_client/text.h"

namespace scriptorium::usage {
namespace {

using namespace slurm_client;

enum Field : std::size_t { kNode, kCpus, kOverSubscribe, kFields };

}  // namespace

std::vector<std::string> sinfo_arguments(const std::string& guard) {
  // A row for each node in each partition. --local: in a federation it may answer for all clusters.
  return {"--all", "--local", "--noheader", "--Node",
          "--format=%N" + guard + "%c" + guard + "%h" + guard};
}

Result<NodeSizes> parse_sinfo(std::string_view answer, std::string_view guard) {
  const auto rows = split_rows<kFields>(answer, guard, "sinfo");
  if (!rows) return rows.error();
  NodeSizes sizes;
  for (const auto& row : *rows) {
    const auto cpus = parse_number<std::uint32_t>(row[kCpus]);
    if (row[kNode].empty() || !cpus) return odd_answer("sinfo");
    NodeSize& size = sizes[std::string(row[kNode])];
    size.cpus = *cpus;
    // "NO", "EXCLUSIVE", "YES:4", "FORCE:1" (the last one also where jobs are suspended for others)
    if (row[kOverSubscribe] != "NO" && row[kOverSubscribe] != "EXCLUSIVE") size.is_shared = true;
  }
  return sizes;
}

bool had_alone(const NodeSizes& sizes, std::string_view node_list, std::uint32_t cpus) {
  const auto hosts = read_hosts(node_list);
  std::uint64_t all = 0;
  for (const std::string& host : hosts) {
    const auto size = sizes.find(host);
    if (size == sizes.end() || size->second.is_shared) return false;
    all += size->second.cpus;
  }
  return !hosts.empty() && cpus == all;
}

}  // namespace scriptorium::usage

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/base/result.h"
#include "schedulers/usage/life.h"
#include "schedulers/usage/records.h"

// The source's own small file, replaced as a whole. A first line with the version and the boot that
// it belongs to, then one record a line:
//
//   scriptorium-usage-state 1 6f1d...-boot-id
//   life {"job":{...},...}       a job that runs
//   ended {"job":{...},...}      one that has ended and whose summary is not in the journal yet
//   told {"job":{...},...}       one whose usage.node is, and whose usage.job is not
//
// A reader leaves out a line whose first word it does not know or whose record is damaged, and
// counts it.
namespace scriptorium::usage {

struct EndedNode {
  NodeUsage node;
  bool written = false;  // its usage.node is in the journal
};

struct StateContent {
  std::string boot_id;
  std::vector<LifeState> lives;
  std::vector<EndedNode> ended;
  std::size_t damaged = 0;  // lines
};

std::string state_header(std::string_view boot_id);
std::string state_line(const LifeState& life);
// `record` is node_record().
std::string state_line(std::string_view record, bool written);

// Keeps others from `state_file` as long as the descriptor lives, by flock on a file beside it
// ("state_file.lock"): two samplers on one file would each overwrite what the other knows.
// kTransient if another has it; an invalid descriptor if the lock file cannot be made, as then the
// state cannot be saved either.
Result<UniqueFd> lock_state(const std::string& state_file);

// kCorrupt: it is not such a file, or one of a version that is not ours.
Result<StateContent> parse_state(std::string_view text);

}  // namespace scriptorium::usage

#pragma once

#include <string>
#include <vector>

#include "checkpoint/engine.h"

namespace scriptorium::checkpoint {

// What decides whether programs can be saved and resumed on a node.
struct NodeFacts {
  std::string kernel;        // "6.1.0-18-amd64"
  std::string ptrace_scope;  // of Yama; "" = the kernel has no Yama
  std::string mountinfo;
  std::string proctrack;  // Slurm's ProctrackType; "" = Slurm cannot be asked here
  Outcome<std::string> engine;
};
NodeFacts node_facts(Engine& engine);

struct CheckLine {
  bool is_good = false;
  std::string text;
};
// Pure: each fact in plain words, and what helps.
std::vector<CheckLine> check_lines(const NodeFacts& facts);

}  // namespace scriptorium::checkpoint

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "core/base/time.h"

// What saves a tree of processes and starts it again. One interface, so that the protocol does not
// depend on a program.
namespace scriptorium::checkpoint {

// Why something was not done. `reason` is one word for programs, such as "pid_taken"
// (checkpoint/README.md lists them); `detail` is for a person and may hold what a job wrote.
struct Refusal {
  std::string reason;
  std::string detail;
};
template <typename T>
using Outcome = tl::expected<T, Refusal>;

// What becomes of a tree that was saved.
enum class AfterDump : std::uint8_t { kEnds, kRunsOn };

// Threads: one. Its calls block.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual std::string name() const = 0;

  // The version, if it works on this kernel. Otherwise what is missing.
  virtual Outcome<std::string> probe() = 0;

  // Writes the images into `directory`, an open folder, and ends the tree or not; after a refusal
  // the tree runs as before. `most_bytes`: of one file. The caller has become the tree's owner.
  virtual Outcome<void> dump(pid_t root, int directory, std::uint64_t most_bytes, AfterDump after,
                             SteadyTime deadline) = 0;

  // Starts the tree of the images again, with the same process ids, in the caller's control groups,
  // and returns its root. The caller is a subreaper, so that the root becomes its child and nothing
  // is left but its descendants after a refusal.
  virtual Outcome<pid_t> restore(int directory, SteadyTime deadline) = 0;
};

}  // namespace scriptorium::checkpoint

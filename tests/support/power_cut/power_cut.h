#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::test {

// Records what this process does to a folder, call by call, and makes each state in which a power
// cut could have left it.
//
//   PowerCut disk(folder);             // what is there now counts as durable
//   ... work ...; disk.mark("stored 1");
//   disk.stop();
//   for (step = 0; step <= disk.steps(); ++step) disk.build(step, PowerCut::Loss::kEverything,
//   0).write_to(other_folder);
//
// A program that links this has its own open(), write(), pwrite(), ftruncate(), fsync(), rename(),
// unlink(), mkdir() ... in front of the C library's, also for the shared libraries that it loads
// (SQLite); the calls are made, and noted if they touch the folder.
//
// The rules are POSIX's and no file system's: bytes are safe after fsync, fdatasync or syncfs; a
// name (made, renamed or removed) is safe after its directory was synced, or by syncfs; of all else
// any part may be there or not, in any order, and of a write any of its sectors. A rename is done
// whole or not at all.
//
// One recorder at a time. Threads: any; their calls on the folder are made one after the other.
class PowerCut {
 public:
  // What a power cut takes of that which was not synced.
  enum class Loss {
    kEverything,
    kBytes,      // names are there, what was written is not
    kNames,      // the reverse
    kTornWrite,  // nothing, but the last write went half to the disk
    kAny,        // by lot, for each name and each sector
    kNothing,    // as if the process had been killed
  };
  static constexpr Loss kLosses[] = {Loss::kEverything, Loss::kBytes, Loss::kNames,
                                     Loss::kTornWrite,  Loss::kAny,   Loss::kNothing};
  static const char* name_of(Loss loss);

  // The files of a state, and its directories, by path below the folder.
  struct Disk {
    std::map<std::string, std::string> files;
    std::vector<std::string> directories;

    void write_to(const std::string& folder) const;  // which must be empty or missing
    std::uint64_t fingerprint() const;
    bool operator==(const Disk&) const = default;
  };

  explicit PowerCut(const std::string& folder);
  ~PowerCut();
  PowerCut(const PowerCut&) = delete;
  PowerCut& operator=(const PowerCut&) = delete;

  // Something that the program holds for certain from now on.
  void mark(std::string text);
  void stop();

  // Once stopped.
  std::size_t steps() const;
  std::vector<std::string> marks_until(std::size_t step) const;
  std::string step_text(std::size_t step) const;  // the call before which the power went
  Disk build(std::size_t step, Loss loss, std::uint64_t seed) const;
  // What the recorder missed: the folder as it is now against the last step with nothing lost. ""
  // if nothing. `ignore`: paths that are written through a mapping.
  std::string missed(const std::function<bool(const std::string& path)>& ignore) const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Which of so many states to look at: all of them with SCRIPTORIUM_POWER_CUT=all, else `most` drawn
// by SCRIPTORIUM_POWER_CUT_SEED (printed; a fixed one if it is not set).
struct PowerCutCase {
  std::size_t step = 0;
  PowerCut::Loss loss = PowerCut::Loss::kEverything;
  std::uint64_t seed = 0;
};
std::vector<PowerCutCase> power_cut_cases(const PowerCut& disk, std::size_t most);

}  // namespace scriptorium::test

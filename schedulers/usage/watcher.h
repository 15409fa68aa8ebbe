#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium::usage {

// What a watched directory is to us.
enum class WatchKind : std::uint8_t {
  kAbove,   // parents of jobs, or what holds them, appear in it
  kParent,  // jobs appear in it
  kJob,     // steps appear in it
  kStep,    // tasks appear in it
  kEvents,  // cgroup.events of a v2 job, or of a step's user processes: the last one ended
};

struct Watched {
  WatchKind kind = WatchKind::kAbove;
  std::string path;
  std::string job;  // of kJob, kStep and kEvents: whose
};

struct Change {
  // kEnded: of a kAbove or kParent that was forgotten or replaced; nothing more comes from that
  // directory.
  enum class What : std::uint8_t { kCreated, kRemoved, kModified, kEnded };
  Watched where;
  What what = What::kCreated;
  std::string name;
};

// inotify over the directories of control groups, which reports a removal some 50 µs after it. A
// hint: what it misses, the next sweep finds. Threads: one.
class Watcher {
 public:
  // kExhausted: this user has no inotify instance left.
  static Result<Watcher> open();
  Watcher() = default;  // watches nothing

  int fd() const noexcept { return fd_.get(); }
  // kNot: it is gone already, or watches are used up (then `exhausted()`). kNew: also where another
  // directory of the same name was watched before.
  enum class Added : std::uint8_t { kNot, kAlready, kNew };
  Added add(Watched what);
  // Must be told of what was removed: the kernel does not end the watch of a removed control group
  // by itself, which would keep memory for every job that ever ran. What a job's directories have
  // told and nobody has read is dropped; what those above jobs have told still comes, up to kEnded;
  // true if that follows.
  bool forget(const std::string& path);
  bool exhausted() const noexcept { return exhausted_; }
  std::size_t size() const noexcept { return watched_.size(); }

  struct Changes {
    std::vector<Change> list;
    bool overflow = false;  // some were lost
  };
  Changes read();

 private:
  bool end_watch(int wd);

  UniqueFd fd_;
  bool exhausted_ = false;
  std::unordered_map<int, Watched> watched_;
  std::unordered_map<std::string, int> by_path_;
};

}  // namespace scriptorium::usage

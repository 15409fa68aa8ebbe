#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "core/capture/capture_context.h"
#include "core/capture/entry_table.h"
#include "core/capture/mount_table.h"

namespace scriptorium {

// Whether the spool's root is there and still the same directory: lost when it is gone, unmounted
// or replaced, found when a spool is there again.
//
// Threads: the capture thread. Borrows context and table for its life.
class SpoolPresence {
 public:
  SpoolPresence(const CaptureContext& context, const EntryTable& table);

  bool is_there() const { return there_; }
  // uid of the root: files of any other owner are not believed.
  std::uint32_t owner() const { return root_.owner; }
  bool is_root(const FileStat& stat) const {
    return stat.inode == root_.inode && stat.device == root_.device;
  }

  enum class State { kSame, kRemounted, kLost };
  // Compares the root with the one that was adopted. After kLost, reason() says why and lose() is
  // to be called; after kRemounted, watches and marks of the old mount may have ended.
  State check();
  const std::string& reason() const { return reason_; }
  void lose(std::string reason, SteadyTime now);

  // While it is lost: at once, then less and less often.
  SteadyTime next_search() const { return next_search_; }
  void search_soon(SteadyTime now) { next_search_ = now; }
  // True if a spool was found; else reason() says why not, "" if nothing is there at all.
  bool search(SteadyTime now);

  // For the start. An empty directory on another device than the captured files is the mount point
  // of the spool's file system, which is not mounted yet. If it were taken for the spool, all
  // entries would be forgotten.
  bool is_bare_mount_point() const;
  void expect_mount() { root_ = {}; }

  // The kernel has reported a change of the mounts; true until it is taken.
  int mounts_fd() const { return mounts_.fd(); }
  void poll_mounts() { mounts_changed_ = mounts_changed_ || mounts_.changed(); }
  void note_mounts_changed() { mounts_changed_ = true; }
  bool mounts_changed() const { return mounts_changed_; }
  bool take_mounts_changed() { return std::exchange(mounts_changed_, false); }

 private:
  struct Root {
    std::uint64_t inode = 0;  // 0 = none is known
    std::uint64_t device = 0;
    std::optional<std::uint64_t> mount;
    std::uint32_t owner = 0;
  };

  void adopt(const FileStat& stat);
  std::string why_not_a_spool() const;

  const CaptureContext& context_;
  const EntryTable& table_;
  MountTable mounts_;
  bool mounts_changed_ = false;
  bool there_ = true;
  Root root_;
  std::string reason_;
  SteadyTime next_search_;
  std::chrono::milliseconds search_delay_{0};
};

// True for what an unused directory may hold: "lost+found" and hidden files.
bool looks_unused(const std::vector<SpoolName>& names);

}  // namespace scriptorium

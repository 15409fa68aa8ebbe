#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/capture/capture_status.h"
#include "core/capture/spool_access.h"

namespace scriptorium {

// The inotify watches of one spool: on its directories, and on the directories of entries that are
// incomplete.
//
// Threads: the capture thread. Fails: a watch that cannot be set is logged (CAPTURE_WATCH_FAILED);
// take_failure() says so once, and the scan then finds what the watch would have told.
class WatchList {
 public:
  struct Watched {
    std::string path;
    bool of_entry = false;
  };

  WatchList(SpoolAccess& access, CaptureReport& report) : access_(access), report_(report) {}

  const Watched* find(int number) const;  // null for a watch that has ended
  bool has_directory(const std::string& path) const { return directories_.contains(path); }
  bool has_directories() const { return !directories_.empty(); }
  bool has_entry(const std::string& key) const { return entries_.contains(key); }

  void add_directory(const std::string& path);
  // False if it cannot be watched. One that is watched stays so.
  bool add_entry(const std::string& key);
  // The entry's inspection is over. With `keep` its directory stays watched until it is removed.
  void release_entry(const std::string& key, bool keep);
  // The directory is gone from this path. A watch follows a directory that was renamed, and would
  // go on under the old name.
  void drop_directory(const std::string& path);
  void drop(int number);
  void forget(int number);  // the kernel has ended it
  void drop_all();

  bool take_failure() { return std::exchange(failed_, false); }

 private:
  void failed(const Error& error);

  SpoolAccess& access_;
  CaptureReport& report_;
  std::unordered_map<int, Watched> watches_;
  std::unordered_map<std::string, int> directories_;
  std::unordered_map<std::string, int> entries_;  // of open inspections
  bool failed_ = false;
};

}  // namespace scriptorium

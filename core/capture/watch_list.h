#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/capture/capture_context.h"

namespace scriptorium {

// The inotify watches of one spool: on its directories, and on the directories of entries that are
// incomplete.
//
// Threads: the capture thread.
// Fails:   a watch that cannot be set is logged (CAPTURE_WATCH_FAILED), and take_failure() returns
//          true once; a scan must then find what the watch would have reported.
class WatchList {
 public:
  struct Watched {
    std::string path;
    bool of_entry = false;
  };

  explicit WatchList(const CaptureContext& context) : context_(context) {}

  const Watched* find(int number) const;  // null for a watch that has ended
  bool has_directory(const std::string& path) const { return directories_.contains(path); }
  bool has_directories() const { return !directories_.empty(); }
  bool has_entry(const std::string& key) const { return entries_.contains(key); }

  void add_directory(const std::string& path);
  // False if it cannot be watched. True if it is watched already.
  bool add_entry(const std::string& key);
  // The entry's inspection is over. With `keep` its directory stays watched until it is removed.
  void release_entry(const std::string& key, bool keep);
  // The directory is gone from this path. A watch follows a renamed directory and would keep
  // reporting under the old name.
  void drop_directory(const std::string& path);
  void drop(int number);
  void forget(int number);  // the kernel has ended it
  void drop_all();

  bool take_failure() { return std::exchange(failed_, false); }

 private:
  void failed(const Error& error);

  const CaptureContext& context_;
  std::unordered_map<int, Watched> watches_;
  std::unordered_map<std::string, int> directories_;
  std::unordered_map<std::string, int> entries_;  // of open inspections
  bool failed_ = false;
};

}  // namespace scriptorium

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/capture/capture_context.h"
#include "core/capture/entry_table.h"
#include "core/capture/spool_presence.h"

namespace scriptorium {

// Descriptors of files that are being written, so that they can be read to their end even if their
// entry is removed first. Used without fanotify only. Bounds: kMost files, each for kLongest after
// its entry was first seen, so that a spool can be unmounted and descriptors do not run out.
class HeldFiles {
 public:
  struct File {
    std::string key;
    std::string name;  // within the entry
    UniqueFd fd;
    SteadyTime first_seen;  // of the entry
  };

  void hold(File file, SteadyTime now);
  bool has(const std::string& key) const;
  std::vector<File> take(const std::string& key);
  void drop(const std::string& key);
  void drop_old(SteadyTime now);
  void drop_all() { files_.clear(); }

 private:
  static constexpr std::size_t kMost = 64;
  static constexpr std::chrono::milliseconds kLongest{1000};
  std::vector<File> files_;
};

// Reads the files of entries into the table. A file that the table holds in its present state is
// not read again. What is not a regular file, or belongs to another owner than the spool's root, is
// left out and counted as ignored.
//
// Owns:    the held files. Borrows all else for its life.
// Threads: the capture thread.
class EntryReader {
 public:
  // What one attempt to read an entry found.
  struct Outcome {
    bool found = false;       // something of it is there
    bool unreadable = false;  // something of it could not be opened
    void add(Outcome other) {
      found = found || other.found;
      unreadable = unreadable || other.unreadable;
    }
  };

  EntryReader(const CaptureContext& context, EntryTable& table, const SpoolPresence& presence)
      : context_(context), table_(table), presence_(presence) {}

  // The entry has an open inspection.
  Outcome read(const std::string& key);
  Outcome read_file(const std::string& key, const std::string& path, UniqueFd opened = {});
  // One attempt at the files that an entry of this scheduler usually has, each by its name.
  Outcome read_usual_files(const std::string& key);
  bool knows_usual_files() const { return !usual_files_.empty(); }
  void learn_usual_files(const SpoolEntry& entry);
  // The entry is gone; what is held of it is whole by now.
  void read_held(const std::string& key);
  HeldFiles& held() { return held_; }

  // The bytes of a file, and in `stat` the state that belongs to them.
  Result<std::string> read_settled(int fd, FileStat& stat) const;
  void add(const std::string& key, std::string name, const FileStat& stat, std::string bytes);

 private:
  bool belongs_to_spool(const std::string& path, const FileStat& stat);
  void log_unreadable(const std::string& path, const Error& error);
  std::uint64_t max_file_bytes() const {
    return static_cast<std::uint64_t>(context_.options.common.max_file_bytes);
  }

  const CaptureContext& context_;
  EntryTable& table_;
  const SpoolPresence& presence_;
  HeldFiles held_;
  std::vector<std::string> usual_files_;
};

}  // namespace scriptorium

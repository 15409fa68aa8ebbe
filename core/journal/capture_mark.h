#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/file.h"

namespace scriptorium {

// The file that identifies a spool entry (the one with the script), in the state in which it was
// captured.
struct FileIdentity {
  std::string file;  // its name within the entry
  // Valid only for this mount: network file systems get another number at the next one.
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t size = 0;  // of the file, not of the script as stored

  // The same file in the same state, wherever its file system is mounted now.
  bool matches(const FileStat& stat) const noexcept {
    return inode == stat.inode && mtime_ns == stat.mtime_ns && size == stat.size;
  }
  bool operator==(const FileIdentity&) const = default;
};

inline FileIdentity identity_of(std::string file, const FileStat& stat) {
  return {.file = std::move(file),
          .device = stat.device,
          .inode = stat.inode,
          .mtime_ns = stat.mtime_ns,
          .size = stat.size};
}

// The spool entry that an event came from, kept as long as the entry exists, so that neither a
// restart nor a rescan captures it twice. `entry` is the adapter's key ("hash.1/job.11").
struct CaptureMark {
  std::string entry;
  FileIdentity identity;
  std::uint64_t size = 0;   // of the script as submitted, as far as it was read
  std::string event_id;     // of the event that was made of it
  std::string capture_key;  // CaptureSecret::key_of(); "" = the event's id is the original one
};

}  // namespace scriptorium

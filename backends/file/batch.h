#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "backends/file/access.h"
#include "backends/file/layout.h"
#include "core/api/delivery.h"
#include "core/base/file.h"

namespace scriptorium::file {

constexpr std::size_t index_of(FileKind kind) noexcept { return static_cast<std::size_t>(kind); }

// An open directory below the root.
struct Directory {
  UniqueFd fd;
  std::string path;      // below the root
  dev_t device = 0;      // an administrator may mount another file system below the root
  bool changed = false;  // a name was added, or was found and may not be durable yet
};

// One delivery of a batch, and its files.
struct Item {
  struct File {
    Bytes bytes;
    std::string temporary;  // "" = none is there
    UniqueFd fd;            // open until it is synced
  };
  Delivery* delivery = nullptr;
  std::string id;  // of the event
  // The files of an event that `replaces` this one are not this one's, too.
  bool needs_same_id = false;
  Place place;
  std::array<std::optional<File>, 3> files;  // by FileKind; nothing = this event has none
  std::optional<uid_t> reader;
  std::shared_ptr<Directory> directory;
  unsigned slot = 1;
  std::vector<FileKind> missing;  // in that slot, when it was examined
  bool found_again = false;
  std::optional<Error> error;

  const Event& event() const { return delivery->event(); }
  std::optional<File>& file(FileKind kind) { return files[index_of(kind)]; }
  const std::optional<File>& file(FileKind kind) const { return files[index_of(kind)]; }
  bool lacks(FileKind kind) const;
  bool has_files() const;
  bool has_temporaries() const;
  // Still to be brought to its end.
  bool in_progress() const { return !error && directory != nullptr; }
};

// What one call of deliver() brings to its end together.
struct Batch {
  int root = -1;
  const Prepared* prepared = nullptr;
  std::vector<Item> items;
  std::map<std::string, std::shared_ptr<Directory>> directories;
  std::unordered_set<std::string> to_sync;  // directories above, whose entries may not be durable
  std::size_t open_files = 0;
  bool one_sync = false;  // by file system, not file by file

  // Make the contents of all temporary files durable.
  void sync_data();
  // Make the names durable. The directories that now are, in which the caller may trust; none if
  // one above them could not be synced.
  std::vector<std::string> sync_names();
  // Between contents and metadata: each directory by itself, as waiting once more for all that
  // others have written to the file system would cost far more.
  void sync_changed_directories();

 private:
  Result<void> sync_file_systems() const;
};

}  // namespace scriptorium::file

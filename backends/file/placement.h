#pragma once

#include "backends/file/access.h"
#include "backends/file/batch.h"
#include "backends/file/config.h"

namespace scriptorium::file {

// An event that is not a job script is one file, its record, whatever is kept of scripts.
const std::vector<FileKind>& kinds_of(const Event& event, const FileConfig& config);

// Writes the files of an item under temporary names and gives them names that were free.
// Owns:    nothing; borrows access for its life.
// Threads: any.
class Placement {
 public:
  explicit Placement(Access& access) : access_(access) {}

  // Whether the names of a slot are this event's own (all or some), free, or another's.
  struct Slot {
    bool other = false;
    std::vector<FileKind> missing;
  };
  Result<Slot> examine(const Batch& batch, const Item& item, unsigned slot) const;
  // Moves the item to the first slot, from its own on, that is its own or free.
  Result<void> find_slot(const Batch& batch, Item& item) const;

  Result<void> write_temporary(Batch& batch, Item& item, FileKind kind, bool keep_open);
  enum class Names { kAll, kContents, kMetadata };
  Result<void> put_in_place(Batch& batch, Item& item, Names names);
  static void drop_temporaries(Item& item);

 private:
  using FoundFiles = std::array<Found, 3>;

  // False: the files that are there are not this event's.
  Result<bool> is_own(const Item& item, unsigned slot, const FoundFiles& found) const;
  // Whether every missing file got its name; false if one was taken meanwhile.
  Result<bool> name_files(Batch& batch, Item& item, Names names, bool again);
  // Writes the item's file once more, for its first copy went to a slot that then turned out to be
  // another's, or it was there when the slot was examined.
  Result<void> write_again(Batch& batch, Item& item, FileKind kind);

  Access& access_;
};

}  // namespace scriptorium::file

#pragma once

#include "backends/file/access.h"
#include "backends/file/batch.h"
#include "backends/file/layout.h"
#include "backends/file/placement.h"

namespace scriptorium::file {

// What becomes of the files of an event that was stored before its owner was known, once the same
// event comes with the owner.
// Owns:    nothing; borrows all for its life.
// Threads: any.
class Replacement {
 public:
  Replacement(const Layout& layout, Placement& placement, const Access& access)
      : layout_(layout), placement_(placement), access_(access) {}

  // The event came without bytes of its files, as nobody keeps all of them: takes what is at the
  // former place. Without any there the item gets no files, and there is nothing to do.
  Result<void> take_contents(const Batch& batch, Item& item) const;
  bool lacks_contents(const Item& item) const { return !missing_contents(item).empty(); }
  // Where the owner is not part of the path, or another daemon knew him at once: access lists and
  // record change, names stay. False: the files are elsewhere, or not here.
  Result<bool> replace_in_place(Batch& batch, Item& item);
  // Removes the files from their former place, now that the same event is safe at its owner's.
  Result<void> remove_replaced(const Batch& batch, const Item& item) const;

 private:
  // The same files where they are as long as nobody knew whose they are.
  Item replaced_item(const Item& item) const;
  // Sets slot and what is missing there; false if it is not there.
  Result<bool> find(const Batch& batch, Item& item) const;
  // False: the files are not there.
  Result<bool> take_beside_record(const Batch& batch, Item& before, Item& item) const;
  Result<bool> take_equal(const Item& before, Item& item) const;
  std::vector<FileKind> missing_contents(const Item& item) const;
  Result<void> grant_contents(const Batch& batch, const Item& item, const Item& before) const;
  Result<void> replace_record(Batch& batch, Item& item, unsigned slot);

  const Layout& layout_;
  Placement& placement_;
  const Access& access_;
};

}  // namespace scriptorium::file

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/file/config.h"
#include "backends/file/layout.h"
#include "core/api/readable_sink.h"
#include "core/base/file.h"
#include "core/base/guarded.h"

namespace scriptorium::file {

// Reads the tree back, in all layouts and formats of environments that it has had. Nothing in it is
// believed but what agrees with the record's own sizes and hashes, and nothing has vanished but
// beneath a marker (marker.h).
//
// Owns:    names of one directory between calls; borrows config and layout. The root is opened for
//          each call.
// Memory:  one event, or one page and 20,000 names.
// Fails:   as ReadableSink says; what the file system answers is in the words of file_error().
class Archive final : public ReadableSink {
 public:
  Archive(const FileConfig& config, const Layout& layout) : config_(config), layout_(layout) {}

  // Whether a job's script, environment and metadata are all kept, so that an event can be made
  // from them.
  bool keeps_whole_events() const noexcept;

  Result<std::shared_ptr<const Event>> fetch(const Event& locator) override;
  Result<Page> list(const Query& query, const std::string& after, std::size_t limit) override;

 private:
  // Position of a listing in the tree: the names on the way to a record, the record's last.
  class Walk;
  class SmallestNames;
  // Names of records after `last` in a directory, the largest first. A page is much smaller than a
  // directory may be, which would else be read for each page.
  struct Ahead {
    std::string directory;  // "alice/2026/"
    std::string last;
    std::vector<std::string> names;
    bool complete = false;  // none comes after them
  };

  Result<UniqueFd> open_root() const;
  Result<std::vector<Layout>> former_layouts(int root) const;
  Result<std::shared_ptr<const Event>> fetch_at_place(int root, const Layout& layout,
                                                      const Event& locator) const;
  // Where it is if its owner became known and is who its job's environment named, which nearly
  // every job does: looking elsewhere takes as long as there are folders.
  Result<std::shared_ptr<const Event>> fetch_at_claimed_owner(int root, const Event& locator) const;
  // Among the records of one place, whatever their ".2".
  Result<std::shared_ptr<const Event>> fetch_at(int directory, const Place& place,
                                                const Event& locator) const;
  // In every directory where the event may be if its user, account or name was different when it
  // was stored.
  Result<std::shared_ptr<const Event>> fetch_elsewhere(int root, const Layout& layout,
                                                       const Event& locator) const;
  Result<std::shared_ptr<const Event>> complete(int directory, const std::string& metadata,
                                                Event event, const Event& locator) const;

  const FileConfig& config_;
  const Layout& layout_;
  Guarded<Ahead> ahead_;
};

}  // namespace scriptorium::file

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/capture/spool_access.h"
#include "core/import/read_entry.h"
#include "core/import/tree_path.h"

namespace scriptorium::import {

// The files of one job, named by the archiver or, in SArchive's Torque trees, by the scheduler.
struct AdapterJob {
  SpoolEntry entry;
  std::optional<Period> period;
};
struct FoundJob {
  std::string path;  // of its script, relative to the tree
  FileStat stat;     // of its script
  std::variant<TreeJob, AdapterJob> job;
};

// Walks another archiver's tree, folder by folder in name order, and reads its jobs. The tree is
// untrusted: the reader follows no symbolic link, opens only regular files, and reads no file
// beyond `max_file_bytes`. It reports a job's problems and continues with the next job.
//
// Owns:    nothing; borrows access and adapter.
// Memory:  the names of the folders on the current path, and one job's files.
class TreeReader {
 public:
  struct Options {
    TreeFormat format = TreeFormat::kSarchive;
    std::uint64_t max_file_bytes = std::uint64_t{128} << 20;
  };
  // If `adapter` is null, only the archiver's own names are recognized.
  TreeReader(Options options, SpoolAccess& access, const SpoolAdapter* adapter)
      : options_(options), access_(access), adapter_(adapter) {}

  struct Visitor {
    std::function<bool(FoundJob)> job;  // false: stop
    std::function<void(const std::string& path, std::string_view kind, const std::string& why)>
        skip;                                              // a job that cannot be imported
    std::function<void(const std::string& path)> foreign;  // a name that does not belong to a job
  };
  // False if a visitor stopped the walk. An error only if the tree itself cannot be listed.
  Result<bool> walk(const Visitor& visitor);

 private:
  struct Group;
  bool folder(const std::string& path, std::vector<SpoolName> names, unsigned depth,
              const Visitor& visitor);
  bool take(const std::string& folder, const Group& group, const Visitor& visitor);
  std::optional<SpoolFile> read(const std::string& path, const std::string& name,
                                const Visitor& visitor);

  const Options options_;
  SpoolAccess& access_;
  const SpoolAdapter* const adapter_;
};

}  // namespace scriptorium::import

#pragma once

#include <string>
#include <vector>

#include "backends/file/environment.h"
#include "backends/file/layout.h"
#include "core/api/options.h"

namespace scriptorium::file {

enum class AclMode {
  kRequired,    // no access lists: refuse to start
  kBestEffort,  // no access lists: only the daemon's own user may read
  kNone,        // modes only: 0640 and 0750
};

enum class SyncMode {
  kAuto,   // kFile for a few files or on a shared file system, else kBatch
  kFile,   // fsync of each file and directory
  kBatch,  // one syncfs for all files of a batch, one for their names
};

struct FileConfig {
  std::string root;
  std::string layout{Layout::kDefault};
  std::vector<std::string> files{"script", "environment", "metadata"};
  EnvironmentStyle environment_format = EnvironmentStyle::kNul;
  AclMode acl = AclMode::kRequired;
  std::vector<std::string> acl_users;
  std::vector<std::string> acl_groups;
  bool owner_may_read = true;
  SyncMode sync = SyncMode::kAuto;
  std::int64_t min_free_bytes = 0;

  // `files`, in the order in which they are written: the metadata last.
  std::vector<FileKind> kinds;
};

std::vector<OptionInfo> options();

// Says every problem of the table; the result is to be used only if there was none.
FileConfig parse_config(const Table& table, Problems& problems);

}  // namespace scriptorium::file

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "backends/file/acl.h"
#include "backends/file/config.h"
#include "backends/file/store.h"
#include "core/api/kit/repeat_limit.h"
#include "core/api/logger.h"
#include "core/base/result.h"

namespace scriptorium::file {

// What was found out about the root and its file system, once before the first batch.
struct Prepared {
  Readers readers;
  bool access_lists = false;  // the file system takes them, and the config wants them
  uid_t owner = 0;            // of what we create; not ours where the server maps users
  bool batch_sync = false;    // one syncfs is reliable and faster here
};

// Makes directories, and says who may read what we create.
// Owns:    nothing; borrows config, names and log for its life.
// Threads: any.
// Fails:   with the words of file_error().
class Access {
 public:
  Access(const FileConfig& config, TemporaryNames& names, std::string instance, Logger& log)
      : config_(config), names_(names), instance_(std::move(instance)), log_(log) {}

  // What the other parts of the sink share with it.
  const FileConfig& config() const noexcept { return config_; }
  TemporaryNames& names() const noexcept { return names_; }
  const std::string& instance() const noexcept { return instance_; }
  Logger& log() const noexcept { return log_; }

  // Whether the configuration asks for access lists.
  bool needs_lists() const noexcept;

  // Gives the open file or directory its access list, or its mode where there are no lists.
  Result<void> grant(const Prepared& prepared, int fd, AclTarget target,
                     std::optional<uid_t> reader) const;
  // The directory `name`, which another worker may have made meanwhile.
  Result<UniqueFd> make_directory(const Prepared& prepared, int parent, const std::string& name,
                                  std::optional<uid_t> reader);
  // Lets the owner of files enter a directory that was there before us; logs it where it cannot.
  void admit_owner(const Prepared& prepared, int directory, const std::string& path, uid_t reader);
  // The same for the root and those whom acl_users and acl_groups name.
  void admit_readers(int root, const Readers& readers);

 private:
  Result<UniqueFd> open_granted(const Prepared& prepared, int parent, const std::string& name,
                                std::optional<uid_t> reader) const;

  const FileConfig& config_;
  TemporaryNames& names_;
  const std::string instance_;
  Logger& log_;
  RepeatLimit logged_;
};

}  // namespace scriptorium::file

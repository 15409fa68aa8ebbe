#include "backends/file/access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "backends/file/outcome.h"

namespace scriptorium::file {
namespace {

constexpr mode_t kFileMode = 0640;
constexpr mode_t kDirectoryMode = 0750;

}  // namespace

bool Access::needs_lists() const noexcept {
  return config_.acl != AclMode::kNone &&
         (config_.owner_may_read || !config_.acl_users.empty() || !config_.acl_groups.empty());
}

Result<void> Access::grant(const Prepared& prepared, int fd, AclTarget target,
                           std::optional<uid_t> reader) const {
  int code = 0;
  if (prepared.access_lists) {
    code = set_access(fd, target, prepared.readers, reader);
  } else {
    mode_t mode = target == AclTarget::kFile ? kFileMode : kDirectoryMode;
    // A configuration that asked for access lists and cannot have them gets less, never more.
    if (needs_lists()) mode &= 0700U;
    if (::fchmod(fd, mode) != 0) code = errno;
  }
  if (code != 0) return file_error(code);
  return {};
}

Result<UniqueFd> Access::open_granted(const Prepared& prepared, int parent, const std::string& name,
                                      std::optional<uid_t> reader) const {
  auto fd = open_directory(parent, name);
  if (!fd) return fd.error();
  if (auto granted = grant(prepared, fd->get(), AclTarget::kDirectory, reader); !granted)
    return granted.error();
  return fd;
}

Result<UniqueFd> Access::make_directory(const Prepared& prepared, int parent,
                                        const std::string& name, std::optional<uid_t> reader) {
  // Under another name until its access list is whole.
  const std::string temporary = names_.make(name, "");
  if (::mkdirat(parent, temporary.c_str(), 0700) != 0) return file_error(errno);
  auto fd = open_granted(prepared, parent, temporary, reader);
  if (!fd) {
    ::unlinkat(parent, temporary.c_str(), AT_REMOVEDIR);
    return fd.error();
  }
  if (::renameat2(parent, temporary.c_str(), parent, name.c_str(), RENAME_NOREPLACE) == 0)
    return fd;
  const int code = errno;
  ::unlinkat(parent, temporary.c_str(), AT_REMOVEDIR);
  if (code == EEXIST) return open_directory(parent, name);  // another worker was faster
  if (code != EINVAL && code != ENOSYS) return file_error(code);
  // No such rename here (NFS). Mode 0700 keeps it closed until the list is set.
  if (::mkdirat(parent, name.c_str(), 0700) != 0)
    return errno == EEXIST ? open_directory(parent, name) : Result<UniqueFd>(file_error(errno));
  return open_granted(prepared, parent, name, reader);
}

// A directory that was there before us, for instance from a time before owner_may_read. One with a
// list of its own was made so on purpose, or belongs to an earlier user of that name: then we only
// log what follows from it.
void Access::admit_owner(const Prepared& prepared, int directory, const std::string& path,
                         uid_t reader) {
  struct stat st{};
  if (::fstat(directory, &st) != 0 || st.st_uid == reader) return;
  const auto granted = user_grant(directory, reader);
  if (!granted || *granted == Grant::kGranted) return;
  if (*granted == Grant::kPlain && st.st_uid == prepared.owner &&
      set_access(directory, AclTarget::kDirectory, prepared.readers, reader) == 0)
    return;
  log_.warning("FILE_OWNER_CANNOT_ENTER",
               "A job's owner cannot enter the directory of its files: it has an access list that "
               "does not name the owner",
               {{"sink", instance_}, {"directory", path}, {"uid", reader}});
}

// A root that was there before us, such as one made by hand: unless they may pass through it nobody
// reaches what is below.
void Access::admit_readers(int root, const Readers& readers) {
  const Readers missing = not_admitted(root, readers);
  if (missing.empty() || admit(root, missing) == 0) return;
  if (!logged_.allows("readers", std::chrono::steady_clock::now())) return;
  log_.warning(
      "FILE_READERS_CANNOT_ENTER",
      "The root of the archive does not let in those whom acl_users and acl_groups name, and its "
      "list is not ours to change",
      {{"sink", instance_}, {"root", config_.root}, {"run", setfacl_line(missing, config_.root)}});
}

}  // namespace scriptorium::file

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

// Who may read what we create, as POSIX access control lists through libacl.
namespace scriptorium::file {

// Readers beside the owner and group of the file.
struct Readers {
  std::vector<uid_t> users;
  std::vector<gid_t> groups;

  bool empty() const noexcept { return users.empty() && groups.empty(); }
};

// Names (or digits) to ids. kInvalidConfig names what this machine does not know.
Result<Readers> resolve_readers(const std::vector<std::string>& users,
                                const std::vector<std::string>& groups);

enum class AclTarget { kFile, kDirectory };

// Replaces what access the open file or directory gives: user rw- (rwx), group and each reader r--
// (r-x), others none; whatever the umask or the parent's default list had put there. A directory
// gets the same as its default list. `extra_user` is one more reader. Returns 0 or the errno of the
// call that failed; EOPNOTSUPP where the file system has no access lists, and the mode then still
// is what the file was created with.
int set_access(int fd, AclTarget target, const Readers& readers,
               std::optional<uid_t> extra_user) noexcept;

// Gives an open file the access list of another one, and no other entries. 0 or errno.
int copy_access(int from, int to) noexcept;

// Those of `readers` whom an open directory does not let list and enter it.
Readers not_admitted(int fd, const Readers& readers);
// Lets them, beside whatever the directory's list or mode gives already; its default list and its
// other entries stay. 0 or errno.
int admit(int fd, const Readers& readers) noexcept;
// The command that does it by hand: "setfacl -m u:1000:rx,g:2000:rx -- PATH".
std::string setfacl_line(const Readers& readers, const std::string& path);

enum class Grant {
  kGranted,  // the list names the user
  kPlain,    // there is no list, only a mode
  kOther,    // there is a list, and it does not name the user
};
// What an open directory says of a user; nothing if it cannot be read.
std::optional<Grant> user_grant(int fd, uid_t uid);

}  // namespace scriptorium::file

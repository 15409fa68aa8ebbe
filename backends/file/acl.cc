#include "backends/file/acl.h"

#include <acl/libacl.h>
#include <sys/acl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "core/base/accounts.h"
#include "core/base/number.h"

namespace scriptorium::file {
namespace {

struct AclFree {
  void operator()(void* p) const noexcept { acl_free(p); }
};
using Acl = std::unique_ptr<std::remove_pointer_t<acl_t>, AclFree>;

// `id` is null for the entries that name nobody.
bool add_entry(acl_t& acl, acl_tag_t tag, const id_t* id, bool write, bool execute) {
  acl_entry_t entry = nullptr;
  acl_permset_t permissions = nullptr;
  if (acl_create_entry(&acl, &entry) != 0 || acl_set_tag_type(entry, tag) != 0 ||
      acl_get_permset(entry, &permissions) != 0)
    return false;
  if (id != nullptr && acl_set_qualifier(entry, id) != 0) return false;
  if (tag == ACL_OTHER) return true;
  if (acl_add_perm(permissions, ACL_READ) != 0) return false;
  if (write && acl_add_perm(permissions, ACL_WRITE) != 0) return false;
  return !execute || acl_add_perm(permissions, ACL_EXECUTE) == 0;
}

Acl make_acl(AclTarget target, const Readers& readers, std::optional<uid_t> extra_user) {
  const bool x = target == AclTarget::kDirectory;
  acl_t raw = acl_init(static_cast<int>(5 + readers.users.size() + readers.groups.size()));
  if (raw == nullptr) return nullptr;
  bool good = add_entry(raw, ACL_USER_OBJ, nullptr, true, x) &&
              add_entry(raw, ACL_GROUP_OBJ, nullptr, false, x) &&
              add_entry(raw, ACL_OTHER, nullptr, false, false);
  bool named = false;
  const auto add_named = [&](acl_tag_t tag, id_t id) {
    good = good && add_entry(raw, tag, &id, false, x);
    named = true;
  };
  for (const uid_t uid : readers.users) add_named(ACL_USER, uid);
  if (extra_user && std::ranges::find(readers.users, *extra_user) == readers.users.end())
    add_named(ACL_USER, *extra_user);
  for (const gid_t gid : readers.groups) add_named(ACL_GROUP, gid);
  if (named) good = good && add_entry(raw, ACL_MASK, nullptr, false, x);
  Acl result(raw);  // adding entries may have moved it
  if (!good) return nullptr;
  return result;
}

// The ids of users or groups, each once. `unknown` gets the names that have none.
template <typename Id, typename Record>
Result<std::vector<Id>> resolve(const char* option, const std::vector<std::string>& names,
                                Result<std::optional<Record>> (*find)(const std::string& name),
                                Id Record::* number, std::string& unknown) {
  std::vector<Id> ids;
  for (const std::string& name : names) {
    const auto found = find(name);
    if (!found) return found.error().with_context(option);
    const std::optional<Id> id = *found ? std::optional((**found).*number) : parse_number<Id>(name);
    // The highest number means "nobody given" to the kernel.
    if (!id || (!*found && *id == static_cast<Id>(-1))) {
      unknown +=
          (unknown.empty() ? "" : "; ") + std::string(option) + ": no such name \"" + name + '"';
    } else if (std::ranges::find(ids, *id) == ids.end()) {
      ids.push_back(*id);
    }
  }
  return ids;
}

}  // namespace

Result<Readers> resolve_readers(const std::vector<std::string>& users,
                                const std::vector<std::string>& groups) {
  std::string unknown;
  auto uids = resolve<uid_t, UserRecord>(
      "acl_users", users, [](const std::string& name) { return find_user(name); }, &UserRecord::uid,
      unknown);
  if (!uids) return uids.error();
  auto gids =
      resolve<gid_t, GroupRecord>("acl_groups", groups, &find_group, &GroupRecord::gid, unknown);
  if (!gids) return gids.error();
  if (!unknown.empty()) {
    return Error{ErrorKind::kInvalidConfig,
                 unknown + "; correct the name, or make it known to this machine (getent)"};
  }
  return Readers{*std::move(uids), *std::move(gids)};
}

int set_access(int fd, AclTarget target, const Readers& readers,
               std::optional<uid_t> extra_user) noexcept {
  const Acl acl = make_acl(target, readers, extra_user);
  if (acl == nullptr) return ENOMEM;
  if (acl_set_fd(fd, acl.get()) != 0) return errno;
  if (target == AclTarget::kDirectory) {
    // libacl sets default lists by path only; this path leads to the descriptor, whatever its name
    // is now.
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (acl_set_file(path.c_str(), ACL_TYPE_DEFAULT, acl.get()) != 0) return errno;
  }
  return 0;
}

int copy_access(int from, int to) noexcept {
  const Acl acl(acl_get_fd(from));
  if (acl == nullptr) return errno;
  // Also a list that says no more than a mode: the new file may have inherited entries.
  if (acl_set_fd(to, acl.get()) == 0) return 0;
  const int code = errno;
  return code == EOPNOTSUPP && acl_equiv_mode(acl.get(), nullptr) == 0 ? 0 : code;
}

namespace {

bool may_enter(acl_entry_t entry) {
  acl_permset_t permissions = nullptr;
  return acl_get_permset(entry, &permissions) == 0 && acl_get_perm(permissions, ACL_READ) == 1 &&
         acl_get_perm(permissions, ACL_EXECUTE) == 1;
}

}  // namespace

Readers not_admitted(int fd, const Readers& readers) {
  struct stat st{};
  const Acl acl(acl_get_fd(fd));
  if (acl == nullptr || ::fstat(fd, &st) != 0) return {};
  Readers missing = readers;
  bool masked = false;
  acl_entry_t entry = nullptr;
  for (int which = ACL_FIRST_ENTRY; acl_get_entry(acl.get(), which, &entry) == 1;
       which = ACL_NEXT_ENTRY) {
    acl_tag_t tag = ACL_UNDEFINED_TAG;
    if (acl_get_tag_type(entry, &tag) != 0) return {};
    if (tag == ACL_MASK) masked = !may_enter(entry);
    if (!may_enter(entry)) continue;
    if (tag == ACL_OTHER) return {};
    if (tag == ACL_USER_OBJ) std::erase(missing.users, st.st_uid);
    if (tag == ACL_GROUP_OBJ) std::erase(missing.groups, st.st_gid);
    if (tag != ACL_USER && tag != ACL_GROUP) continue;
    const std::unique_ptr<void, AclFree> id(acl_get_qualifier(entry));
    if (id == nullptr) continue;
    if (tag == ACL_USER) std::erase(missing.users, *static_cast<const uid_t*>(id.get()));
    if (tag == ACL_GROUP) std::erase(missing.groups, *static_cast<const gid_t*>(id.get()));
  }
  return masked ? readers : missing;
}

int admit(int fd, const Readers& readers) noexcept {
  Acl acl(acl_get_fd(fd));
  if (acl == nullptr) return errno;
  acl_t raw = acl.release();
  // An entry that gives too little is replaced.
  const auto remove = [&](acl_tag_t wanted, id_t id) {
    acl_entry_t entry = nullptr;
    for (int which = ACL_FIRST_ENTRY; acl_get_entry(raw, which, &entry) == 1;
         which = ACL_NEXT_ENTRY) {
      acl_tag_t tag = ACL_UNDEFINED_TAG;
      if (acl_get_tag_type(entry, &tag) != 0 || tag != wanted) continue;
      const std::unique_ptr<void, AclFree> qualifier(acl_get_qualifier(entry));
      if (qualifier == nullptr || *static_cast<const id_t*>(qualifier.get()) != id) continue;
      acl_delete_entry(raw, entry);
      return;
    }
  };
  bool good = true;
  for (const uid_t uid : readers.users) {
    remove(ACL_USER, uid);
    good = good && add_entry(raw, ACL_USER, &uid, false, true);
  }
  for (const gid_t gid : readers.groups) {
    remove(ACL_GROUP, gid);
    good = good && add_entry(raw, ACL_GROUP, &gid, false, true);
  }
  good = good && acl_calc_mask(&raw) == 0;
  acl.reset(raw);
  if (!good) return ENOMEM;
  return acl_set_fd(fd, acl.get()) == 0 ? 0 : errno;
}

std::string setfacl_line(const Readers& readers, const std::string& path) {
  std::string entries;
  for (const uid_t uid : readers.users)
    entries += (entries.empty() ? "u:" : ",u:") + std::to_string(uid) + ":rx";
  for (const gid_t gid : readers.groups)
    entries += (entries.empty() ? "g:" : ",g:") + std::to_string(gid) + ":rx";
  return "setfacl -m " + entries + " -- " + path;
}

std::optional<Grant> user_grant(int fd, uid_t uid) {
  const Acl acl(acl_get_fd(fd));
  if (acl == nullptr) return std::nullopt;
  Grant grant = Grant::kPlain;
  acl_entry_t entry = nullptr;
  for (int which = ACL_FIRST_ENTRY; acl_get_entry(acl.get(), which, &entry) == 1;
       which = ACL_NEXT_ENTRY) {
    acl_tag_t tag = ACL_UNDEFINED_TAG;
    if (acl_get_tag_type(entry, &tag) != 0) return std::nullopt;
    if (tag == ACL_USER || tag == ACL_GROUP) grant = Grant::kOther;
    if (tag != ACL_USER) continue;
    const std::unique_ptr<void, AclFree> id(acl_get_qualifier(entry));
    if (id != nullptr && *static_cast<const uid_t*>(id.get()) == uid) return Grant::kGranted;
  }
  return grant;
}

}  // namespace scriptorium::file

#include "core/base/accounts.h"

#include <grp.h>

#include <cerrno>
#include <vector>

namespace scriptorium {
namespace {

// The record of a group with thousands of members takes hundreds of KiB.
constexpr std::size_t kFirstBuffer = std::size_t{4} << 10;
constexpr std::size_t kLargestBuffer = std::size_t{4} << 20;

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }
UserRecord read_record(const passwd& entry) {
  return {text_or_empty(entry.pw_name), entry.pw_uid, entry.pw_gid, text_or_empty(entry.pw_dir)};
}
GroupRecord read_record(const group& entry) {
  GroupRecord record{text_or_empty(entry.gr_name), entry.gr_gid, {}};
  for (char** member = entry.gr_mem; member != nullptr && *member != nullptr; ++member)
    record.members.emplace_back(*member);
  return record;
}

// getpwnam_r, getpwuid_r, getgrnam_r and getgrgid_r have the same signature and need a buffer that
// grows until the record fits.
template <typename Record, typename Entry, typename Key, typename Get>
Result<std::optional<Record>> look_up(const std::string& what, Key key, Get get) {
  std::vector<char> buffer(kFirstBuffer);
  while (true) {
    Entry entry{};
    Entry* found = nullptr;
    const int failed = get(key, &entry, buffer.data(), buffer.size(), &found);
    if (failed == EINTR) continue;
    if (failed == ERANGE && buffer.size() < kLargestBuffer) {
      buffer.resize(buffer.size() * 4);
      continue;
    }
    // getpwnam(3): depending on the system, any of these means that the record does not exist.
    if (failed != 0 && failed != ENOENT && failed != ESRCH && failed != EBADF && failed != EPERM) {
      return system_error("look up " + what, failed);
    }
    if (found == nullptr) return std::optional<Record>{};
    return std::optional<Record>{read_record(*found)};
  }
}

// A C string ends at the NUL, so the lookup would be for a different name.
bool has_zero(const std::string& name) { return name.find('\0') != std::string::npos; }

}  // namespace

Result<std::optional<UserRecord>> find_user(const std::string& name, GetUserByName get) {
  if (has_zero(name)) return std::optional<UserRecord>{};
  return look_up<UserRecord, passwd>("user \"" + name + '"', name.c_str(), get);
}

Result<std::optional<UserRecord>> find_user(uid_t uid) {
  return look_up<UserRecord, passwd>("user " + std::to_string(uid), uid, ::getpwuid_r);
}

Result<std::optional<GroupRecord>> find_group(const std::string& name) {
  if (has_zero(name)) return std::optional<GroupRecord>{};
  return look_up<GroupRecord, group>("group \"" + name + '"', name.c_str(), ::getgrnam_r);
}

Result<std::optional<GroupRecord>> find_group(gid_t gid) {
  return look_up<GroupRecord, group>("group " + std::to_string(gid), gid, ::getgrgid_r);
}

std::vector<gid_t> groups_of(const UserRecord& user) {
  int count = 32;
  std::vector<gid_t> groups(32);
  while (::getgrouplist(user.name.c_str(), user.gid, groups.data(), &count) < 0)
    groups.resize(static_cast<std::size_t>(count));
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

}  // namespace scriptorium

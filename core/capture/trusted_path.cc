#include "core/capture/trusted_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <string_view>

#include "core/base/path.h"

namespace scriptorium {
namespace {

bool may_write(const struct stat& s, uid_t uid, const std::vector<gid_t>& groups) {
  // An owner can give himself the permission at any time.
  if (s.st_uid == uid) return true;
  if ((s.st_mode & S_IWGRP) != 0 &&
      std::find(groups.begin(), groups.end(), s.st_gid) != groups.end())
    return true;
  return (s.st_mode & S_IWOTH) != 0;
}

Error writable(const std::string& place, uid_t uid) {
  return {ErrorKind::kInvalidConfig,
          place + " can be written by uid " + std::to_string(uid) +
              ", as whom the daemon runs; it could so have files of others opened: chown root " +
              place + " and chmod go-w " + place};
}

}  // namespace

Result<void> check_not_writable_by(const std::string& path, uid_t uid,
                                   const std::vector<gid_t>& groups, bool and_itself) {
  if (uid == 0) return {};
  std::vector<std::string> left = names_of(path);  // the next name last
  std::reverse(left.begin(), left.end());
  std::vector<std::string> above;  // the directories passed, "" = the top
  std::string at;
  constexpr int kMostLinks = 40;
  for (int links = 0; !left.empty();) {
    const std::string name = std::move(left.back());
    left.pop_back();
    if (name == "..") {
      at = above.empty() ? std::string{} : above.back();
      if (!above.empty()) above.pop_back();
      continue;
    }
    const std::string directory = at.empty() ? "/" : at;
    const std::string next = at + "/" + name;
    struct stat around{};
    struct stat here{};
    if (::stat(directory.c_str(), &around) != 0) return system_error(directory, errno);
    if (::lstat(next.c_str(), &here) != 0) return system_error(next, errno);
    const bool keeps_others_names =
        (around.st_mode & S_ISVTX) != 0 && around.st_uid != uid && here.st_uid != uid;
    if (may_write(around, uid, groups) && !keeps_others_names) return writable(directory, uid);
    if (S_ISLNK(here.st_mode)) {
      std::array<char, PATH_MAX> target{};
      const ssize_t size = ::readlink(next.c_str(), target.data(), target.size());
      if (size < 0) return system_error(next, errno);
      if (++links > kMostLinks) return system_error(path, ELOOP);
      const std::string_view text(target.data(), static_cast<std::size_t>(size));
      const auto names = names_of(text);
      left.insert(left.end(), names.rbegin(), names.rend());
      if (text.starts_with('/')) {
        at.clear();
        above.clear();
      }
      continue;
    }
    if (left.empty() && and_itself && may_write(here, uid, groups)) return writable(next, uid);
    above.push_back(at);
    at = next;
  }
  return {};
}

}  // namespace scriptorium

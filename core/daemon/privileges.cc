#include "core/daemon/privileges.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/accounts.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/capture/system_call_filter.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;

struct User {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

std::vector<gid_t> own_groups() {
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  groups.resize(static_cast<std::size_t>(
      std::max(0, ::getgroups(static_cast<int>(groups.size()), groups.data()))));
  groups.push_back(::getegid());
  return groups;
}

User ourselves() {
  User user{std::to_string(::geteuid()), ::geteuid(), ::getegid(), own_groups()};
  const auto found = find_user(::geteuid());
  if (found && *found) user.name = (*found)->name;
  return user;
}

Result<User> user_of(const std::string& name, const std::string& config_file) {
  const std::string place = config_file + ": user";
  const auto found = find_user(name);
  if (!found) return found.error().with_context(place);
  if (!*found) {
    return Error{ErrorKind::kInvalidConfig, place + ": there is no user \"" + name +
                                                "\"; make one (useradd --system --no-create-home " +
                                                "--shell /usr/sbin/nologin " + name +
                                                "), or name another"};
  }
  User user{(*found)->name, (*found)->uid, (*found)->gid, {}};
  int count = 32;
  user.groups.resize(32);
  while (::getgrouplist(user.name.c_str(), user.gid, user.groups.data(), &count) < 0) {
    user.groups.resize(static_cast<std::size_t>(count));
  }
  user.groups.resize(static_cast<std::size_t>(count));
  return user;
}

Result<void> become(const User& user) {
  // First, since the right to do so ends with the change of the user.
  if (auto emptied = empty_bounding_set(); !emptied) return emptied;
  if (::setgroups(user.groups.size(), user.groups.data()) != 0)
    return system_error("setgroups", errno);
  if (::setresgid(user.gid, user.gid, user.gid) != 0) return system_error("setresgid", errno);
  if (::setresuid(user.uid, user.uid, user.uid) != 0) return system_error("setresuid", errno);
  if (user.uid != 0 && ::setresuid(0, 0, 0) == 0) {
    return Error{ErrorKind::kInvalidConfig, "the step back to root is still open"};
  }
  // The change has cleared it (prctl(2)), and with it core dumps and the own files in /proc.
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  return {};
}

// ---- state_dir

// What a daemon makes in state_dir. Everything else there, such as an archive, keeps its owner.
bool is_ours(std::string_view name) {
  return name == "lock" || name == "control.sock" || name == "in-flight" ||
         name.starts_with("journal.") || name.starts_with("bad.");
}

struct CloseDirectory {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

// Calls `each(name)` for everything in an open directory.
template <typename Each>
Result<void> each_name(const UniqueFd& directory, Each each) {
  UniqueFd again(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, CloseDirectory> stream(again ? ::fdopendir(again.get()) : nullptr);
  if (!stream) return system_error("state_dir", errno);
  static_cast<void>(again.release());  // closedir closes it
  while (const dirent* entry =
             ::readdir(stream.get())) {  // NOLINT(concurrency-mt-unsafe): the stream is ours alone
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      if (auto done = each(std::string(name)); !done) return done;
    }
  }
  return {};
}

// Gives a file, or a directory with its content, to the user. Only files of ours are touched, and
// no link, by which another file would get into his hands.
Result<void> give(const UniqueFd& directory, const std::string& name, const User& user, int depth) {
  const UniqueFd fd(::openat(directory.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return system_error("state_dir: " + name, errno);
  const auto stat = stat_fd(fd.get());
  if (!stat) return stat.error();
  if (stat->owner != ::geteuid() || S_ISLNK(stat->mode) ||
      (!stat->is_directory() && stat->links != 1))
    return {};
  if (stat->is_directory() && depth > 0) {
    const UniqueFd inside(
        ::openat(directory.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!inside) return system_error("state_dir: " + name, errno);
    auto given = each_name(
        inside, [&](const std::string& child) { return give(inside, child, user, depth - 1); });
    if (!given) return given;
  }
  if (::fchownat(fd.get(), "", user.uid, user.gid, AT_EMPTY_PATH) != 0)
    return system_error("state_dir: chown " + name, errno);
  return {};
}

// Makes the directories above. Others may pass through them, whatever our umask says.
Result<void> make_above(const std::string& directory) {
  const std::filesystem::path above = std::filesystem::path(directory).parent_path();
  std::error_code failed;
  if (above.empty() || std::filesystem::exists(above, failed)) return {};
  if (auto made = make_above(above); !made) return made;
  if (::mkdir(above.c_str(), 0755) != 0 && errno != EEXIST)
    return system_error("state_dir: mkdir " + above.string(), errno);
  if (::chmod(above.c_str(), 0755) != 0)
    return system_error("state_dir: chmod " + above.string(), errno);
  return sync_parent(above);
}

Result<UniqueFd> make_state_dir(const std::string& directory) {
  if (auto made = make_above(directory); !made) return made.error();
  if (::mkdir(directory.c_str(), 0750) != 0)
    return system_error("state_dir: mkdir " + directory, errno);
  if (auto synced = sync_parent(directory); !synced) return synced.error();
  return UniqueFd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Why state_dir must not be given away; "" = it may be.
Result<std::string> why_not_give(const UniqueFd& fd, const FileStat& stat) {
  std::string owner = "belongs to uid " + std::to_string(stat.owner);
  if (stat.owner != ::geteuid()) return owner;
  if ((stat.mode & (S_IWGRP | S_IWOTH)) != 0)
    return std::string("can be written by others than its owner");
  bool empty = true;
  bool ours = false;
  auto searched = each_name(fd, [&](const std::string& name) {
    empty = false;
    ours = ours || name == "lock" || name == "journal.db";
    return Result<void>{};
  });
  if (!searched) return searched.error();
  if (!empty && !ours) return owner + " and holds things that are not Scriptorium's";
  return std::string{};
}

// Makes sure that state_dir is the user's, and returns what was done, or for `look` would be.
Result<std::string> prepare_state_dir(std::string directory, const User& user, bool look) {
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT) {
    if (look) return directory + " is not there yet; `run` makes it, for " + user.name;
    auto made = make_state_dir(directory);
    if (!made) return made.error();
    fd = *std::move(made);
  }
  // A link, or not a directory: not ours to give away. The start continues with what the user can
  // do there, and reports what he cannot.
  if (!fd) return std::string{};
  const auto stat = stat_fd(fd.get());
  if (!stat) return stat.error();
  if (stat->owner == user.uid) return std::string{};
  const auto refused = why_not_give(fd, *stat);
  if (!refused) return refused.error();
  if (!refused->empty()) {
    return Error{ErrorKind::kInvalidConfig, "state_dir " + directory + " " + *refused + "; chown " +
                                                user.name + " " + directory +
                                                ", or name another state_dir"};
  }
  if (look)
    return directory + " belongs to uid " + std::to_string(stat->owner) + "; `run` gives it to " +
           user.name;
  auto given = each_name(fd, [&](const std::string& name) {
    return is_ours(name) ? give(fd, name, user, 2) : Result<void>{};
  });
  if (!given) return given.error();
  // Last, so that the next start repeats the rest if this one is killed on the way.
  if (::fchown(fd.get(), user.uid, user.gid) != 0)
    return system_error("state_dir: chown " + directory, errno);
  return directory + " was given to " + user.name;
}

// The owner of state_dir, if it exists and is not root's: a daemon that the service manager starts
// as that user needs no `user`.
std::optional<User> owner_of_state_dir(const CoreConfig& config) {
  struct stat st{};
  if (::stat(config.state_dir.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid == 0)
    return std::nullopt;
  User user{std::to_string(st.st_uid), st.st_uid, st.st_gid, {st.st_gid}};
  if (const auto found = find_user(st.st_uid); found && *found) {
    if (auto named = user_of((*found)->name, "state_dir")) return *std::move(named);
  }
  return user;
}

Result<User> wanted_user(const CoreConfig& config, const std::string& config_file,
                         PrivilegesFor purpose) {
  if (config.user.empty()) {
    const bool beside = purpose == PrivilegesFor::kLook || purpose == PrivilegesFor::kCommand;
    if (beside && ::geteuid() == 0) {
      if (auto owner = owner_of_state_dir(config)) return *std::move(owner);
    }
    return ourselves();
  }
  auto user = user_of(config.user, config_file);
  if (!user && purpose == PrivilegesFor::kRefusal) return ourselves();
  return user;
}

bool may_change_user(CapabilitySet rights) {
  return has_capability(rights, CAP_SETUID) && has_capability(rights, CAP_SETGID);
}

Error cannot_become(const User& user, const std::string& config_file) {
  return Error{ErrorKind::kInvalidConfig,
               config_file + ": user: \"" + user.name + "\" cannot be become by uid " +
                   std::to_string(::geteuid()) + "; start as root, or as that user (User=" +
                   user.name + " in the unit), or take the line out"};
}

Result<void> start_opener(Privileges& privileges, const User& user, const std::string& config_file,
                          CapabilitySet keep) {
  auto opener =
      SpoolOpener::start({.config_file = std::filesystem::absolute(config_file).lexically_normal(),
                          .client = {.uid = user.uid, .groups = user.groups}},
                         keep);
  if (!opener) return opener.error();
  privileges.opener = *std::move(opener);
  privileges.separated = true;
  return {};
}

}  // namespace

bool has_daemon_user(const CoreConfig& config) {
  return ::geteuid() == 0 && (!config.user.empty() || owner_of_state_dir(config));
}

Result<void> become_daemon_user(const CoreConfig& config, const std::string& config_file) {
  if (!has_daemon_user(config)) return {};
  auto user = wanted_user(config, config_file, PrivilegesFor::kCommand);
  if (!user) return user.error();
  if (user->uid == ::geteuid()) return {};
  if (auto became = become(*user); !became)
    return became.error().with_context("becoming " + user->name);
  return keep_only_capabilities(0);
}

Result<Privileges> separate_privileges(const CoreConfig& config, const std::string& config_file,
                                       PrivilegesFor purpose) {
  const bool refusal = purpose == PrivilegesFor::kRefusal;
  const auto rights = effective_capabilities();
  if (!rights) return rights.error();
  auto user = wanted_user(config, config_file, purpose);
  if (!user) return user.error();
  const bool changes = user->uid != ::geteuid();
  if (changes && !may_change_user(*rights))
    return refusal ? Result<Privileges>(Privileges{}) : cannot_become(*user, config_file);
  Privileges privileges;
  privileges.user = user->name;
  privileges.uid = user->uid;
  const CapabilitySet keep = *rights & kSpoolCapabilities;
  if (keep != 0 && !refusal) {
    if (auto started = start_opener(privileges, *user, config_file, keep); !started)
      return started.error();
  } else {
    privileges.why =
        "neither CAP_SYS_ADMIN nor CAP_DAC_READ_SEARCH is in effect, so there is nothing to keep "
        "apart: the spool is read with the rights of this user; start as root with `user` set, or "
        "give the unit AmbientCapabilities= with both";
  }
  if (changes && !refusal) {
    auto prepared = prepare_state_dir(config.state_dir, *user, purpose == PrivilegesFor::kLook);
    if (!prepared) return prepared.error();
    privileges.state_dir_note = *std::move(prepared);
  }
  if (changes) {
    if (auto became = become(*user); !became)
      return became.error().with_context("becoming " + user->name);
  }
  if (keep == 0 && !changes) {
    privileges.capabilities = *rights;
    return privileges;
  }
  if (auto given_up = keep_only_capabilities(0); !given_up) return given_up.error();
  const auto filtered = deny_privileged_system_calls();
  privileges.filtered = filtered.has_value();
  if (!filtered) privileges.unfiltered_because = filtered.error().message();
  return privileges;
}

std::string privileges_json(const Privileges& privileges) {
  Json json = {{"separated", privileges.separated},
               {"why", privileges.why.empty() ? Json(nullptr) : Json(privileges.why)},
               {"user", privileges.user},
               {"uid", privileges.uid},
               {"capabilities", capability_names(privileges.capabilities)},
               {"system_calls_filtered", privileges.filtered},
               {"opener", nullptr}};
  if (privileges.opener != nullptr) {
    json["opener"] = {{"pid", privileges.opener->pid()},
                      {"capabilities", capability_names(privileges.opener->capabilities())}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace scriptorium

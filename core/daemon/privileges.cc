#include "core/daemon/privileges.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/accounts.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/capture/system_call_filter.h"
#include "core/daemon/state_dir.h"

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
  return User{(*found)->name, (*found)->uid, (*found)->gid, groups_of(**found)};
}

Result<void> become(const User& user) {
  // First, because the right to do this ends when the user changes.
  if (auto emptied = empty_bounding_set(); !emptied) return emptied;
  if (::setgroups(user.groups.size(), user.groups.data()) != 0)
    return system_error("setgroups", errno);
  if (::setresgid(user.gid, user.gid, user.gid) != 0) return system_error("setresgid", errno);
  if (::setresuid(user.uid, user.uid, user.uid) != 0) return system_error("setresuid", errno);
  if (user.uid != 0 && ::setresuid(0, 0, 0) == 0) {
    return Error{ErrorKind::kInvalidConfig, "this process could still become root again"};
  }
  // The change of user clears this flag (prctl(2)). Without it there are no core dumps, and the
  // process cannot read its own files in /proc.
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  return {};
}

// The owner of state_dir, if it exists and does not belong to root. A daemon that the service
// manager starts as that user has no `user` in its configuration.
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
               config_file + ": user: \"" + user.name + "\": uid " + std::to_string(::geteuid()) +
                   " may not become this user; start as root, or as that user (User=" + user.name +
                   " in the unit), or remove the line"};
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

bool wants_executables(const Config& config) {
  return std::ranges::any_of(config.sources, [](const SourceInstance& source) {
    const Value* found = source.table.find("executables");
    const bool* wanted = found != nullptr ? std::get_if<bool>(&found->data) : nullptr;
    return wanted != nullptr && *wanted;
  });
}

Result<void> start_executable_reader(Privileges& privileges, const Config& config,
                                     CapabilitySet rights) {
  if (!wants_executables(config)) return {};
  if ((rights & kExecutableCapabilities) == 0) {
    privileges.executables_problem =
        "executables = true has no effect, because CAP_SYS_PTRACE is not in effect; copy the "
        "drop-in "
        "usage-programs.conf as zz-usage-programs.conf, so that it is applied after usage.conf "
        "(docs/privileges.md)";
    return {};
  }
  auto reader = ExecutableReader::start(kExecutableCapabilities);
  if (!reader) return reader.error();
  privileges.executables = *std::move(reader);
  privileges.separated = true;
  privileges.why.clear();
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

Result<Privileges> separate_privileges(const Config& config, const std::string& config_file,
                                       PrivilegesFor purpose) {
  const CoreConfig& core = config.core;
  const bool refusal = purpose == PrivilegesFor::kRefusal;
  const auto rights = effective_capabilities();
  if (!rights) return rights.error();
  auto user = wanted_user(core, config_file, purpose);
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
  if (purpose == PrivilegesFor::kRun || purpose == PrivilegesFor::kLook) {
    if (auto started = start_executable_reader(privileges, config, *rights); !started)
      return started.error();
  }
  if (changes && !refusal) {
    auto prepared = give_state_dir(core.state_dir, {user->name, user->uid, user->gid},
                                   purpose == PrivilegesFor::kLook);
    if (!prepared) return prepared.error();
    privileges.state_dir_note = *std::move(prepared);
  }
  if (changes) {
    if (auto became = become(*user); !became)
      return became.error().with_context("becoming " + user->name);
  }
  if (keep == 0 && privileges.executables == nullptr && !changes) {
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
               {"opener", nullptr},
               {"executable_reader", nullptr}};
  if (privileges.opener != nullptr) {
    json["opener"] = {{"pid", privileges.opener->pid()},
                      {"capabilities", capability_names(privileges.opener->capabilities())}};
  }
  if (privileges.executables != nullptr && !privileges.executables->process().has_ended()) {
    const HelperProcess& reader = privileges.executables->process();
    json["executable_reader"] = {{"pid", reader.pid()},
                                 {"capabilities", capability_names(reader.capabilities())}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace scriptorium

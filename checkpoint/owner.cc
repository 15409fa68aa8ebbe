#include "checkpoint/owner.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/base/file.h"

namespace scriptorium::checkpoint {
namespace {

#ifndef CAP_CHECKPOINT_RESTORE
constexpr int kCheckpointRestore = 40;
#else
constexpr int kCheckpointRestore = CAP_CHECKPOINT_RESTORE;
#endif

using Sets = std::array<__user_cap_data_struct, 2>;

// Permitted and inheritable: the two that ambient ones need.
Result<void> set_capabilities(const std::vector<int>& numbers) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  Sets sets{};
  for (const int number : numbers) {
    auto& word = sets.at(static_cast<std::size_t>(number) / 32);
    word.permitted |= 1U << (static_cast<unsigned>(number) % 32);
    word.inheritable = word.permitted;
  }
  if (::syscall(SYS_capset, &header, sets.data()) != 0) return system_error("capset", errno);
  return {};
}

Result<void> shrink_bounding_set(const std::vector<int>& keep) {
  for (int number = 0; ::prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; ++number) {
    if (std::ranges::find(keep, number) == keep.end() &&
        ::prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0)
      return system_error("emptying the capability bounding set", errno);
  }
  return {};
}

// Those that this process has kept.
Result<std::vector<int>> permitted_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  Sets sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return system_error("capget", errno);
  std::vector<int> numbers;
  for (unsigned number = 0; number < 64; ++number) {
    if ((sets.at(number / 32).permitted >> (number % 32) & 1U) != 0)
      numbers.push_back(static_cast<int>(number));
  }
  return numbers;
}

}  // namespace

std::vector<int> engine_capabilities(EngineUse use, std::string_view ptrace_scope) {
  std::vector<int> numbers{kCheckpointRestore, CAP_SETPCAP};
  const bool restricted = !ptrace_scope.empty() && !ptrace_scope.starts_with('0');
  if (use == EngineUse::kDump && restricted) numbers.push_back(CAP_SYS_PTRACE);
  return numbers;
}

Result<void> become_owner(const UserRecord& user, EngineUse use) {
  if (user.uid == 0) return Error{ErrorKind::kPermanent, "root's jobs are not saved"};
  const auto scope = read_file("/proc/sys/kernel/yama/ptrace_scope", 16);
  const std::vector<int> keep = engine_capabilities(use, scope ? *scope : std::string{});
  const std::vector<gid_t> groups = groups_of(user);
  if (auto shrunk = shrink_bounding_set(keep); !shrunk) return shrunk;
  if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return system_error("keeping capabilities", errno);
  if (::setgroups(groups.size(), groups.data()) != 0) return system_error("setgroups", errno);
  if (::setresgid(user.gid, user.gid, user.gid) != 0) return system_error("setresgid", errno);
  if (::setresuid(user.uid, user.uid, user.uid) != 0) return system_error("setresuid", errno);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return system_error("setting no_new_privs", errno);
  if (auto set = set_capabilities(keep); !set) return set;
  if (::setresuid(0, 0, 0) == 0) return Error{ErrorKind::kPermanent, "root can be had again"};
  return {};
}

Result<void> allow_engine() {
  const auto permitted = permitted_capabilities();
  if (!permitted) return permitted.error();
  for (const int number : *permitted) {
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0) != 0)
      return system_error("raising the engine's capabilities", errno);
  }
  return {};
}

Result<void> drop_capabilities() { return set_capabilities({}); }

}  // namespace scriptorium::checkpoint

#include "core/capture/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace scriptorium {
namespace {

constexpr int kMost = 64;

using Words = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

CapabilitySet join(std::uint32_t low, std::uint32_t high) {
  return (CapabilitySet{high} << 32) | low;
}

// glibc has no wrapper, and libcap would be one more library for two calls.
Result<Words> get() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  Words words{};
  if (::syscall(SYS_capget, &header, words.data()) != 0) return system_error("capget", errno);
  return words;
}

}  // namespace

const CapabilitySet kSpoolCapabilities =
    capability_bit(CAP_SYS_ADMIN) | capability_bit(CAP_DAC_READ_SEARCH);

bool has_capability(CapabilitySet set, int number) { return (set & capability_bit(number)) != 0; }

Result<CapabilitySet> effective_capabilities() {
  auto words = get();
  if (!words) return words.error();
  return join((*words)[0].effective, (*words)[1].effective);
}

Result<void> empty_bounding_set() {
  const auto rights = effective_capabilities();
  if (!rights) return rights.error();
  if (!has_capability(*rights, CAP_SETPCAP)) return {};
  for (int number = 0; number < kMost && ::prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; ++number) {
    if (::prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0)
      return system_error("emptying the capability bounding set", errno);
  }
  return {};
}

Result<void> keep_only_capabilities(CapabilitySet keep) {
  // Including those kept: the bounding set only matters to programs that we start.
  if (auto emptied = empty_bounding_set(); !emptied) return emptied;
  // EINVAL: a kernel before 4.3, which has no ambient set.
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL) {
    return system_error("clearing the ambient capabilities", errno);
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  Words words{};
  words[0].effective = words[0].permitted = static_cast<std::uint32_t>(keep);
  words[1].effective = words[1].permitted = static_cast<std::uint32_t>(keep >> 32);
  if (::syscall(SYS_capset, &header, words.data()) != 0)
    return system_error("giving up capabilities", errno);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return system_error("setting no_new_privs", errno);

  const auto after = get();
  if (!after) return after.error();
  const auto [low, high] = *after;
  if (join(low.permitted, high.permitted) != keep || join(low.effective, high.effective) != keep ||
      join(low.inheritable, high.inheritable) != 0) {
    return Error{ErrorKind::kTransient, "giving up capabilities had no effect"};
  }
  return {};
}

std::vector<std::string> capability_names(CapabilitySet set) {
  static constexpr std::array<std::pair<int, const char*>, 10> kNames{
      {{CAP_CHOWN, "CAP_CHOWN"},
       {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
       {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
       {CAP_FOWNER, "CAP_FOWNER"},
       {CAP_KILL, "CAP_KILL"},
       {CAP_SETGID, "CAP_SETGID"},
       {CAP_SETUID, "CAP_SETUID"},
       {CAP_SETPCAP, "CAP_SETPCAP"},
       {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
       {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}}};
  std::vector<std::string> names;
  for (int number = 0; number < kMost; ++number) {
    if (!has_capability(set, number)) continue;
    std::string name = "CAP_" + std::to_string(number);
    for (const auto& [named, text] : kNames) {
      if (named == number) name = text;
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace scriptorium

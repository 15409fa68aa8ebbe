#include "checkpoint/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <set>

#include "checkpoint/folder.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::size_t kMostText = 64U << 20;
// A process that has lost its memory ends within this time.
constexpr int kEndingMs = 1'000;

std::string text_of(pid_t pid, const char* name) {
  return read_proc("/proc/" + std::to_string(pid) + "/" + name);
}

std::vector<Process> list(std::optional<uid_t> uid) {
  std::vector<Process> processes;
  const UniqueFd directory(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto names = names_in(directory.get());
  if (!names) return processes;
  for (const std::string& name : *names) {
    const auto pid = parse_number<pid_t>(name);
    if (!pid) continue;
    auto process = read_process(*pid);
    if (process && (!uid || process->uids.front() == *uid))
      processes.push_back(*std::move(process));
  }
  return processes;
}

}  // namespace

std::string read_proc(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::string part(16U << 10, '\0');
  while (fd && text.size() < kMostText) {
    const ssize_t got = ::read(fd.get(), part.data(), part.size());
    if (got <= 0) break;
    text.append(part, 0, static_cast<std::size_t>(got));
  }
  return text;
}

std::optional<Process> parse_process(std::string_view stat, std::string_view status) {
  Process process;
  const auto pid = take_number<pid_t>(stat);
  // A program's name may hold anything, also ") R 1".
  const auto name_end = stat.rfind(") ");
  if (!pid || name_end == std::string_view::npos) return std::nullopt;
  process.pid = *pid;
  stat.remove_prefix(name_end + 2);
  const std::string_view state = take_until(stat, ' ');
  process.is_zombie = state == "Z" || state == "X";
  const auto parent = parse_number<pid_t>(take_until(stat, ' '));
  constexpr int kFieldsUpToStart = 17;  // of proc(5): 5 to 21
  for (int i = 0; i < kFieldsUpToStart; ++i) take_until(stat, ' ');
  const auto start = parse_number<std::uint64_t>(take_until(stat, ' '));
  if (!parent || !start) return std::nullopt;
  process.parent = *parent;
  process.start = *start;

  std::uint64_t kilobytes = 0;
  bool saw_capabilities = false;
  process.has_capabilities = false;
  while (!status.empty()) {
    std::string_view value = take_until(status, '\n');
    const std::string_view key = take_until(value, ':');
    value = trim(value, " \t");
    if (key == "Uid") {
      while (!value.empty()) {
        const auto uid = parse_number<uid_t>(take_until(value, '\t'));
        if (uid) process.uids.push_back(*uid);
      }
    } else if (key == "VmRSS" || key == "VmSwap") {
      kilobytes += take_number<std::uint64_t>(value).value_or(0);
    } else if (key == "CapPrm" || key == "CapEff" || key == "CapAmb") {
      saw_capabilities = true;
      process.has_capabilities =
          process.has_capabilities || value.find_first_not_of('0') != std::string_view::npos;
    }
  }
  if (process.uids.size() != 4 || !saw_capabilities) return std::nullopt;
  process.memory_bytes = kilobytes << 10;
  return process;
}

std::optional<Process> read_process(pid_t pid) {
  return parse_process(text_of(pid, "stat"), text_of(pid, "status"));
}

std::vector<Process> processes_of(uid_t uid) { return list(uid); }
std::vector<Process> all_processes() { return list(std::nullopt); }
std::string read_group_text(pid_t pid) { return text_of(pid, "cgroup"); }

std::vector<Process> tree_of(pid_t root, const std::vector<Process>& all) {
  std::vector<Process> tree;
  const auto found = std::ranges::find(all, root, &Process::pid);
  if (found == all.end()) return tree;
  tree.push_back(*found);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    for (const Process& process : all) {
      // The list is not of one instant, so two entries may seem to be each other's parent.
      if (process.parent == tree[i].pid &&
          std::ranges::find(tree, process.pid, &Process::pid) == tree.end())
        tree.push_back(process);
    }
  }
  return tree;
}

std::int64_t start_time_ns(const Process& process) {
  const auto now_ns = [](clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
  };
  const std::int64_t tick = kSecond / ::sysconf(_SC_CLK_TCK);
  return now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME) +
         static_cast<std::int64_t>(process.start) * tick;
}

bool belongs_to(const Process& process, uid_t uid) {
  return std::ranges::all_of(process.uids, [&](uid_t id) { return id == uid; });
}

bool is_in_job(const Process& process, const JobOwner& owner) {
  return is_in_job(read_group_text(process.pid), owner);
}

bool has_ended(const Process& process) {
  const UniqueFd opened = open_process(process.pid);
  const auto now = read_process(process.pid);
  return !now || now->is_zombie || now->start != process.start || wait_for_end(opened, kEndingMs);
}

std::optional<Process> first_process(const JobOwner& owner) {
  std::vector<Process> members;
  for (Process& process : processes_of(owner.uid)) {
    if (process.pid != ::getpid() && !process.is_zombie && belongs_to(process, owner.uid) &&
        is_in_job(process, owner))
      members.push_back(std::move(process));
  }
  std::set<pid_t> pids;
  for (const Process& process : members) pids.insert(process.pid);
  std::erase_if(members, [&](const Process& p) { return pids.contains(p.parent); });
  const auto first = std::ranges::min_element(members, {}, &Process::start);
  return first == members.end() ? std::nullopt : std::optional(*first);
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = ::environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

UniqueFd open_process(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool is_running(const UniqueFd& process) { return process && !wait_for_end(process, 0); }

void send_signal(const UniqueFd& process, int signal) {
  ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
}

bool wait_for_end(const UniqueFd& process, int limit_ms) {
  pollfd wait{process.get(), POLLIN, 0};
  return ::poll(&wait, 1, limit_ms) > 0;
}

void end_descendants() {
  const pid_t self = ::getpid();
  // A process that forks as fast as it is killed is caught once its parent is dead.
  for (int round = 0; round < 100; ++round) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    bool found = false;
    for (const Process& process : tree_of(self, all_processes())) {
      if (process.pid == self || process.is_zombie) continue;
      ::kill(process.pid, SIGKILL);
      found = true;
    }
    if (!found) break;
    ::poll(nullptr, 0, 2);
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace scriptorium::checkpoint

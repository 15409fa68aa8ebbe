#include "schedulers/usage/slurm_child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium::usage {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMaxOutput = std::size_t{256} << 20;
constexpr std::size_t kMaxError = 16U << 10;
constexpr milliseconds kKillPatience{1000};
constexpr const char* kFolders = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin";

Error failed(const std::string& name, const std::string& what) { return {ErrorKind::kTransient, name + ": " + what}; }

// The two streams of a child, each read until its end.
struct Stream {
  UniqueFd read, write;
  std::size_t keep = 0;
  std::string text;
  bool more = false;  // than we keep

  bool open(std::size_t limit) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read.reset(ends[0]);
    write.reset(ends[1]);
    keep = limit;
    return ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
  }

  void take() {
    std::array<char, 32U << 10> buffer;  // NOLINT: filled by read()
    for (ssize_t got = 1; got > 0;) {
      got = ::read(read.get(), buffer.data(), buffer.size());
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) read.reset();
      if (got <= 0) return;
      const std::size_t room = keep - text.size();
      more = more || static_cast<std::size_t>(got) > room;
      text.append(buffer.data(), std::min(static_cast<std::size_t>(got), room));
    }
  }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));  // posix_spawn writes to none of them
  result.push_back(nullptr);
  return result;
}

int spawn(pid_t& pid, const std::vector<std::string>& command, const std::vector<std::string>& environment, int out, int err) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&how);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setsigdefault(&how, &all);
  posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int code =
      ::posix_spawn(&pid, command.front().c_str(), &files, &how, pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&how);
  posix_spawn_file_actions_destroy(&files);
  return code;
}

// Ends the whole group of a child and then the child itself, so that its number cannot be another's when we kill it.
class Reaper {
 public:
  explicit Reaper(pid_t pid) : pid_(pid) {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  ~Reaper() { finish(); }

  int finish() noexcept {
    if (pid_ <= 0) return status_;
    ::kill(-pid_, SIGKILL);
    int raw = 0;
    // One that hangs in a file system does not even end by SIGKILL; it is then left to itself.
    const auto until = steady_clock::now() + kKillPatience;
    while (::waitpid(pid_, &raw, WNOHANG) == 0 && steady_clock::now() < until) ::poll(nullptr, 0, 2);
    pid_ = -1;
    status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return status_;
  }
  // The child has ended by itself: its status is its own and not that of our signal.
  bool ended() const noexcept {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
  }

 private:
  pid_t pid_;
  int status_ = 255;
};

}  // namespace

Result<ChildAnswer> run_child(const std::string& program, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& environment, const std::stop_token& stop, milliseconds patience) {
  const std::string name = program.substr(program.rfind('/') + 1);
  Stream output;
  Stream error;
  const UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!output.open(kMaxOutput) || !error.open(kMaxError) || !wake) return failed(name, "no descriptors left");
  const std::stop_callback on_stop(stop, [fd = wake.get()]() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(fd, &one, sizeof one));  // fails only when it is readable anyway
  });

  std::vector<std::string> command{program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  pid_t pid = -1;
  if (const int code = spawn(pid, command, environment, output.write.get(), error.write.get()); code != 0) {
    return failed(name, system_error("start", code).message());
  }
  Reaper child(pid);
  output.write.reset();
  error.write.reset();

  const auto deadline = steady_clock::now() + patience;
  while (output.read || error.read || !child.ended()) {
    if (stop.stop_requested()) return failed(name, "stopped");
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return failed(name, "no answer in time; killed");
    std::array<pollfd, 3> fds{{{output.read.get(), POLLIN, 0}, {error.read.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}}};
    // Its pipes end a moment before the child does, and nothing that all our kernels have tells poll() of that.
    const bool reading = output.read || error.read;
    ::poll(fds.data(), fds.size(), static_cast<int>(std::min(left, reading ? milliseconds{60'000} : milliseconds{2}).count()));
    if (output.read && fds[0].revents != 0) output.take();
    if (error.read && fds[1].revents != 0) error.take();
    if (output.more) return failed(name, "its answer is larger than " + format_bytes(kMaxOutput) + "; killed");
  }
  return ChildAnswer{child.finish(), std::move(output.text), std::move(error.text)};
}

Result<std::string> find_command(const std::string& configured, const std::string& name, const std::string& key) {
  if (!configured.empty()) {
    if (::access(configured.c_str(), X_OK) == 0) return configured;
    return Error{ErrorKind::kInvalidConfig, key + ": " + configured + " cannot be executed; correct the path"};
  }
  std::string_view folders = kFolders;
  while (!folders.empty()) {
    std::string path = std::string(folders.substr(0, folders.find(':'))) + '/' + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
    folders.remove_prefix(std::min(path.size() - name.size(), folders.size()));
  }
  return Error{ErrorKind::kInvalidConfig, name + " is not in " + kFolders + "; install Slurm's client commands, or set " + key};
}

Result<std::string> make_nonce() {
  std::array<char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error{ErrorKind::kTransient, "getrandom gave no random bytes"};
  }
  return hex_encode({bytes.data(), bytes.size()});
}

}  // namespace scriptorium::usage

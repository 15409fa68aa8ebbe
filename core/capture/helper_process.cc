#include "core/capture/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/capture/system_call_filter.h"

namespace scriptorium {
namespace {

// What `ps` shows. The arguments' memory begins where glibc's copy of argv[0] points; more room
// than they had there is not.
void set_title(const std::string& name) {
  ::prctl(PR_SET_NAME, name.c_str(), 0, 0, 0);
  std::string title = "scriptorium: " + name;
  std::replace(title.begin(), title.end(), '-', ' ');
  const auto arguments = read_file("/proc/self/cmdline");
  if (!arguments || arguments->empty() ||
      ::strcmp(arguments->c_str(), program_invocation_name) != 0)
    return;
  char* place = program_invocation_name;
  std::fill_n(place, arguments->size(), '\0');
  std::copy_n(title.begin(), std::min(title.size(), arguments->size() - 1), place);
}

constexpr int kSocket = STDERR_FILENO + 1;

// Standard error stays open for error messages; input and output become /dev/null, `socket` becomes
// kSocket; everything else is closed.
bool keep_only_socket(int socket) {
  // A number above all that are replaced below: a daemon may have been started without some of the
  // first three.
  const int safe = ::fcntl(socket, F_DUPFD, kSocket + 2);
  if (safe < 0 || ::dup2(safe, kSocket) < 0) return false;
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(null, STDOUT_FILENO) < 0) return false;
  return ::syscall(SYS_close_range, kSocket + 1, ~0U, 0) == 0;
}

[[noreturn]] void run_process(int socket, pid_t parent, const HelperOptions& options) noexcept {
  constexpr int kFailed = 70;
  set_title(options.name);
  // All processes of a service or terminal receive SIGTERM and SIGINT, but the daemon drains first
  // and then closes the socket.
  sigset_t left_to_the_daemon;
  sigemptyset(&left_to_the_daemon);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&left_to_the_daemon, signal);
  ::pthread_sigmask(SIG_SETMASK, &left_to_the_daemon, nullptr);
  ::signal(SIGCHLD, SIG_DFL);
  // A working directory would keep a file system from being unmounted.
  if (::chdir("/") != 0 || !keep_only_socket(socket)) ::_exit(kFailed);
  if (!keep_only_capabilities(options.keep)) ::_exit(kFailed);
  if (options.deny_system_calls) static_cast<void>(deny_privileged_system_calls());
  const rlimit descriptors{256, 256};
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  ::setrlimit(RLIMIT_CORE, &no_core);
  // Other processes of our user may neither trace this one nor read its memory. This follows the
  // capabilities, because giving them up may reset it.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  // The end of the socket is not enough: a process that the daemon has left behind could keep it
  // open.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != parent) ::_exit(0);
  options.serve(kSocket);
  ::_exit(0);
}

}  // namespace

HelperProcess::HelperProcess(pid_t pid, UniqueFd pidfd, UniqueFd socket, CapabilitySet capabilities)
    : pid_(pid),
      pidfd_(std::move(pidfd)),
      socket_(std::move(socket)),
      capabilities_(capabilities) {}

Result<HelperProcess> HelperProcess::start(const HelperOptions& options) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return system_error("socketpair", errno);
  UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("starting the process " + options.name + ": fork", errno);
  if (pid == 0) run_process(theirs.get(), parent, options);
  theirs.reset();
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int code = errno;
  HelperProcess process(pid, std::move(pidfd), std::move(ours), options.keep);
  if (!process.pidfd_) return system_error("pidfd_open (Linux 5.3)", code);
  return process;
}

bool HelperProcess::has_ended() const noexcept {
  pollfd ended{pidfd_.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) > 0;
}

HelperProcess::~HelperProcess() {
  if (!pidfd_) return;
  socket_.reset();  // this ends it, unless it hangs in a file system; then it ends with us
  constexpr int kMostMs = 2000;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (::poll(&ended, 1, kMostMs) > 0) ::waitpid(pid_, nullptr, 0);
}

}  // namespace scriptorium

#include "checkpoint/criu.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/owner.h"
#include "checkpoint/processes.h"
#include "core/base/ascii.h"
#include "core/base/command.h"
#include "core/base/file.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

constexpr const char* kFolders = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin";
constexpr const char* kPidFile = "criu.pid";
constexpr std::chrono::seconds kProbePatience{20};
constexpr std::uint64_t kMostLog = 16U << 20;

// The child that becomes criu. It ends with this process, so that a dump that nobody finishes does
// not end the program that is being saved.
[[noreturn]] void become_criu(const std::vector<std::string>& arguments, int directory,
                              std::uint64_t most_bytes, pid_t parent) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::array<char, 48> path{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  std::array<char*, 2> environment{path.data(), nullptr};
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  ::setpgid(0, 0);
  const rlim_t limit = most_bytes;
  const struct rlimit file_size{limit, limit};
  if (::fchdir(directory) != 0 || (most_bytes != 0 && ::setrlimit(RLIMIT_FSIZE, &file_size) != 0) ||
      !allow_engine() || ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent)
    ::_exit(126);
  ::signal(SIGXFSZ, SIG_IGN);  // writing too much fails with EFBIG instead
  ::execve(argv.front(), argv.data(), environment.data());
  ::_exit(127);
}

Refusal engine_failed(std::string detail) { return {"engine", std::move(detail)}; }

class Criu final : public Engine {
 public:
  explicit Criu(std::string program) : program_(std::move(program)) {}

  std::string name() const override { return kCriuEngine; }

  Outcome<std::string> probe() override {
    const auto found = find_program(program_, "criu", kFolders);
    if (!found) {
      return tl::unexpected(engine_failed(program_.empty() ? "criu is not installed"
                                                           : program_ + " cannot be executed"));
    }
    program_ = *found;
    CommandRunner runner;
    const auto ask = [&](std::vector<std::string> arguments) {
      return runner.run({.program = program_,
                         .arguments = std::move(arguments),
                         .environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
                        {}, std::chrono::steady_clock::now() + kProbePatience);
    };
    const auto version = ask({"--version"});
    if (!version) return tl::unexpected(engine_failed(version.error().message()));
    std::string_view text = version->output;
    std::string number;
    if (const auto at = text.find("Version: "); at != std::string_view::npos) {
      text.remove_prefix(at + 9);
      number = printable(take_until(text, '\n'), 40);
    }
    const auto check = ask({"check", "--unprivileged"});
    if (!check) return tl::unexpected(engine_failed(check.error().message()));
    if (check->status != 0) {
      std::string why = refusal_of_log(check->error + check->output).detail;
      std::string_view error = check->error;
      if (why.empty()) why = printable(take_until(error, '\n'), 200);
      return tl::unexpected(engine_failed("`criu check --unprivileged` of version " + number +
                                          " fails (" + why +
                                          "); criu 3.18 or later is needed, from Linux 6.13 on "
                                          "4.1 or later"));
    }
    return number;
  }

  Outcome<void> dump(pid_t root, int directory, std::uint64_t most_bytes, AfterDump after,
                     SteadyTime deadline) override {
    std::vector<std::string> arguments{"dump", "--tree", std::to_string(root)};
    if (after == AfterDump::kRunsOn) arguments.emplace_back("--leave-running");
    return run(std::move(arguments), "dump.log", directory, most_bytes, deadline);
  }

  Outcome<pid_t> restore(int directory, SteadyTime deadline) override {
    ::unlinkat(directory, kPidFile, 0);
    const auto restored = run({"restore", "--restore-detached", "--pidfile", kPidFile},
                              "restore.log", directory, 0, deadline);
    if (!restored) return tl::unexpected(restored.error());
    const UniqueFd file(::openat(directory, kPidFile, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    const auto text = file ? read_fd(file.get(), 32) : Result<std::string>(std::string{});
    const auto pid = parse_number<pid_t>(text ? trim(*text, " \n") : std::string_view{});
    ::unlinkat(directory, kPidFile, 0);
    if (!pid) return tl::unexpected(engine_failed("criu did not say which process it restored"));
    return *pid;
  }

 private:
  Outcome<void> run(std::vector<std::string> arguments, const std::string& log, int directory,
                    std::uint64_t most_bytes, SteadyTime deadline) {
    arguments.insert(arguments.begin(), program_);
    for (const char* argument : {"--unprivileged", "--shell-job", "--manage-cgroups=ignore",
                                 "--images-dir", ".", "--log-file", log.c_str(), "-v2"})
      arguments.emplace_back(argument);
    ::unlinkat(directory, log.c_str(), 0);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return tl::unexpected(engine_failed(system_error("fork", errno).message()));
    if (pid == 0) become_criu(arguments, directory, most_bytes, parent);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const bool ended =
        left.count() > 0 && wait_for_end(open_process(pid), static_cast<int>(left.count()));
    if (!ended) ::kill(-pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!ended) return tl::unexpected(Refusal{"timeout", "the time limit was reached"});
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    const UniqueFd file(::openat(directory, log.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    const auto text = file ? read_fd(file.get(), kMostLog) : Result<std::string>(std::string{});
    Refusal refusal = refusal_of_log(text ? *text : std::string{});
    if (refusal.detail.empty())
      refusal.detail =
          "criu ended with status " +
          std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return tl::unexpected(std::move(refusal));
  }

  std::string program_;
};

}  // namespace

std::unique_ptr<Engine> make_criu(const std::string& program) {
  return std::make_unique<Criu>(program);
}

Refusal refusal_of_log(std::string_view log) {
  struct Cause {
    std::string_view text;
    const char* reason;
  };
  // What criu 3.17 to 4.2 writes.
  static constexpr std::array kCauses{
      Cause{"File exists", "pid_taken"},
      Cause{"Connected TCP socket", "tcp"},
      Cause{"Some file locks are hold", "flock"},
      Cause{"external socket is used", "external_socket"},
      Cause{"Peer ", "external_socket"},
      Cause{"has bad ", "file_changed"},
      Cause{"Can't open file", "file_missing"},
      Cause{"No space left", "no_space"},
      Cause{"Disk quota exceeded", "no_space"},
      Cause{"File too large", "too_large"},
  };
  Refusal refusal{"engine", {}};
  while (!log.empty()) {
    const std::string_view line = take_until(log, '\n');
    const auto error = line.find("Error (");
    if (error == std::string_view::npos || line.find("RLIMIT_NOFILE") != std::string_view::npos)
      continue;
    const std::string_view text = line.substr(error);
    // The first one with a known cause, or else the first: the others follow from it.
    if (refusal.detail.empty()) refusal.detail = printable(text, 300);
    for (const Cause& cause : kCauses) {
      if (text.find(cause.text) != std::string_view::npos) {
        return {cause.reason, printable(text, 300)};
      }
    }
  }
  return refusal;
}

}  // namespace scriptorium::checkpoint

#include "core/base/command.h"

#include <fcntl.h>
#include <features.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/child_process.h"
#include "core/base/file.h"
#include "core/base/stop_signal.h"
#include "core/base/text.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMaxError = 16U << 10;
// A child closes its pipes a moment before it ends. Not every supported kernel can report a
// process's end to poll() (pidfd_open came with 5.3), so we check at this interval.
constexpr milliseconds kReapPace{2};

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe", errno);
  Pipe result{UniqueFd(ends[0]), UniqueFd(ends[1])};
  if (fcntl(result.read.get(), F_SETFL, O_NONBLOCK) != 0) return system_error("pipe", errno);
  return result;
}

struct SpawnSettings {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};

  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  ~SpawnSettings() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
};

// posix_spawn() takes char* but does not write through it.
std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

// Standard input as a file in memory that nobody can change. No thread has to write it to a program
// that may not read, and a mail program may read it twice.
Result<UniqueFd> input_file(const std::string& bytes) {
  UniqueFd file(memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return system_error("memfd_create", errno);
  if (auto written = write_fd(file.get(), bytes); !written) return written.error();
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0 || lseek(file.get(), 0, SEEK_SET) != 0)
    return system_error("sealing standard input", errno);
  return file;
}

// `input`: -1 = /dev/null.
Result<pid_t> start(const CommandRunner::Command& command, int input, int output, int error) {
  SpawnSettings settings;
  if (input < 0) {
    posix_spawn_file_actions_addopen(&settings.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&settings.actions, input, STDIN_FILENO);
  }
  posix_spawn_file_actions_adddup2(&settings.actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&settings.actions, error, STDERR_FILENO);
#if __GLIBC_PREREQ(2, 34)
  // All our descriptors are closed on exec; a library that opens one without that flag must not
  // leak it to the child.
  posix_spawn_file_actions_addclosefrom_np(&settings.actions, STDERR_FILENO + 1);
#endif
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&settings.attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&settings.attributes, &signals);
  posix_spawnattr_setpgroup(&settings.attributes, 0);
  posix_spawnattr_setflags(&settings.attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> arguments{command.program};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  pid_t pid = -1;
  const int failed =
      posix_spawn(&pid, command.program.c_str(), &settings.actions, &settings.attributes,
                  c_strings(arguments).data(), c_strings(command.environment).data());
  if (failed != 0)
    return Error(ErrorKind::kTransient, system_error("start " + command.program, failed).message());
  return pid;
}

// One of the child's streams.
struct Stream {
  UniqueFd fd;        // empty after the end of the stream
  std::size_t limit;  // of `text`, in bytes
  std::string text;   // one byte over the limit shows that there was more

  bool over_limit() const noexcept { return text.size() > limit; }

  // Appends the available bytes.
  void read_available() {
    std::array<char, 64U << 10> buffer;  // NOLINT: filled by read()
    while (true) {
      const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
      if (got > 0) {
        text.append(buffer.data(), std::min(static_cast<std::size_t>(got),
                                            limit + 1 - std::min(limit + 1, text.size())));
        if (over_limit()) return;
      } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
        return fd.reset();
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }
};

// Waits for either stream or the stop, at most `limit`, and reads what there is.
Result<void> wait_and_read(Stream& output, Stream& error, int stop, milliseconds limit) {
  std::array<pollfd, 3> fds{
      {{output.fd.get(), POLLIN, 0}, {error.fd.get(), POLLIN, 0}, {stop, POLLIN, 0}}};
  if (poll(fds.data(), fds.size(), static_cast<int>(limit.count())) < 0 && errno != EINTR)
    return Error(ErrorKind::kTransient, system_error("poll", errno).message());
  if (fds[0].revents != 0) output.read_available();
  if (fds[1].revents != 0) error.read_available();
  return {};
}

Error late(const std::string& program) {
  return {ErrorKind::kTransient, program + ": no answer in time; killed"};
}
Error stopped(const std::string& program) { return {ErrorKind::kTransient, program + ": stopped"}; }

}  // namespace

CommandRunner::~CommandRunner() { stuck(); }

std::size_t CommandRunner::stuck() noexcept {
  reap_ended(stuck_);
  return stuck_.size();
}

Result<CommandRunner::Answer> CommandRunner::run(const Command& command,
                                                 const std::stop_token& stop, SteadyTime deadline) {
  stuck();
  started_ = false;
  const std::string name = command.program.substr(command.program.rfind('/') + 1);
  if (stop.stop_requested()) return stopped(name);
  if (steady_clock::now() >= deadline)
    return Error(ErrorKind::kTransient, name + ": no time left to ask");
  auto output = make_pipe();
  if (!output) return output.error();
  auto error = make_pipe();
  if (!error) return error.error();
  UniqueFd input;
  if (!command.input.empty()) {
    auto file = input_file(command.input);
    if (!file) return file.error();
    input = *std::move(file);
  }
  const StopSignal wake(stop);
  if (wake.fd() < 0) return Error(ErrorKind::kExhausted, name + ": no descriptor left");
  const auto pid = start(command, input.get(), output->write.get(), error->write.get());
  if (!pid) return pid.error();
  started_ = true;
  ChildProcess child(*pid, stuck_);
  input.reset();
  output->write.reset();
  error->write.reset();
  Stream out{std::move(output->read), max_output_, {}};
  Stream err{std::move(error->read), kMaxError, {}};
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return late(name);
    const bool reading = !command.leaves_children && (out.fd || err.fd);
    if (const auto status = reading ? std::nullopt : child.ended()) {
      if (command.leaves_children) {
        child.leave_group();
        out.read_available();
        err.read_available();
      }
      return Answer{*status, std::move(out.text), err.text.substr(0, kMaxError)};
    }
    const auto pace = reading ? milliseconds{60'000} : kReapPace;
    const auto read = wait_and_read(out, err, wake.fd(), std::min(left, pace));
    if (!read) return read.error();
    if (stop.stop_requested()) return stopped(name);
    if (out.over_limit()) {
      return Error(ErrorKind::kTransient, name + ": its answer is larger than " +
                                              std::to_string(max_output_) + " bytes; killed");
    }
  }
}

Error exit_error(std::string_view name, const CommandRunner::Answer& answer) {
  const std::string_view line = std::string_view(answer.error).substr(0, answer.error.find('\n'));
  return {ErrorKind::kTransient, std::string(name) + ": exit status " +
                                     std::to_string(answer.status) + ": " + printable(line, 200)};
}

std::optional<std::string> find_program(const std::string& configured, std::string_view name,
                                        std::string_view folders) {
  const auto if_executable = [](std::string path) {
    return access(path.c_str(), X_OK) == 0 ? std::optional(std::move(path)) : std::nullopt;
  };
  if (!configured.empty()) return if_executable(configured);
  while (!folders.empty()) {
    std::string folder(take_until(folders, ':'));
    if (auto found = if_executable(folder.append("/").append(name))) return found;
  }
  return std::nullopt;
}

}  // namespace scriptorium

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/fault_point.h"
#include "core/base/file.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "core/base/time.h"
#include "core/capture/build_id.h"
#include "core/capture/executable_reader.h"
#include "core/capture/opener_protocol.h"

// The executable reader's side of the protocol.
namespace scriptorium {
namespace {

constexpr std::size_t kMostChildren = 4;
constexpr std::size_t kMostRequests = 1024;
constexpr std::size_t kMostFiles = 4096;
constexpr std::size_t kMostPathBytes = 1024;
constexpr std::string_view kDeleted = " (deleted)";

// One content of one file: another content has another time.
struct FileKey {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t changed_ns = 0;

  auto operator<=>(const FileKey&) const = default;
};
using BuildIds = std::map<FileKey, std::string>;

// ---- what a child does, where a file server that is down may hold it up

// The command of a process, if it is the one that started then.
std::optional<std::string> command_of(const ProcessKey& process) {
  const auto text = read_file("/proc/" + std::to_string(process.pid) + "/stat");
  if (!text) return std::nullopt;
  // The command may hold any byte, so the last ')' ends it.
  const std::size_t begin = text->find('(');
  const std::size_t end = text->rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  std::string_view fields = std::string_view(*text).substr(end + 1);
  constexpr int kBeforeStart = 20;  // the blank, then fields 3 to 21 of proc(5)
  for (int i = 0; i < kBeforeStart; ++i) take_until(fields, ' ');
  if (parse_number<std::uint64_t>(take_until(fields, ' ')) != process.start_ticks)
    return std::nullopt;
  return text->substr(begin + 1, end - begin - 1);
}

std::string link_of(const std::string& link, bool is_unlinked) {
  std::string path(std::size_t{PATH_MAX} + kDeleted.size(), '\0');
  const ssize_t bytes = ::readlink(link.c_str(), path.data(), path.size());
  path.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  // A file may also be called that.
  if (is_unlinked && path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  if (path.size() > kMostPathBytes) path.resize(kMostPathBytes);
  return path;
}

std::string build_id_of(const std::string& link) {
  const UniqueFd fd(::open(link.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return {};
  const auto id = find_build_id([&](std::uint64_t offset, std::size_t bytes) {
    std::string text(bytes, '\0');
    const ssize_t read = ::pread(fd.get(), text.data(), bytes, static_cast<off_t>(offset));
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
    return text;
  });
  return id ? hex_encode(*id) : std::string{};
}

// What a child writes into its pipe: the file's key, then the packet for the client.
std::string read_executable(const ProcessKey& process, const BuildIds& known) {
  const std::string link = "/proc/" + std::to_string(process.pid) + "/exe";
  // All that follows is of the file that is open here, even if the process executes another one.
  const UniqueFd fd(::open(link.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) return {};
  const std::string opened = "/proc/self/fd/" + std::to_string(fd.get());
  ExecutableAnswer answer{.process = process, .executable = {}};
  FileKey key;
  struct stat st{};
  // Of a user's own FUSE mount, as rootless containers have it, others see nothing but the path.
  const bool is_visible = ::fstat(fd.get(), &st) == 0;
  answer.executable.path = link_of(opened, is_visible && st.st_nlink == 0);
  if (is_visible && S_ISREG(st.st_mode)) {
    key = {st.st_dev, st.st_ino, st.st_ctim.tv_sec * kSecond + st.st_ctim.tv_nsec};
    const auto found = known.find(key);
    answer.executable.build_id = found != known.end() ? found->second : build_id_of(opened);
  }
  auto command = command_of(process);
  if (!command) return {};
  answer.executable.command = *std::move(command);
  std::string bytes;
  opener::append(bytes, key);
  return bytes + to_packet(answer);
}

// ---- the reader itself, which touches no file

class Server {
 public:
  Server(int socket, std::chrono::milliseconds deadline) : socket_(socket), deadline_(deadline) {}

  void run() {
    while (is_open_) {
      begin_requests();
      send_answers();
      wait();
    }
  }

 private:
  struct Child {
    ProcessKey process;
    pid_t pid = 0;
    UniqueFd pidfd;
    UniqueFd pipe;
    SteadyTime deadline;
    bool is_killed = false;  // its request is answered; it has not ended yet
  };

  void begin_requests() {
    while (!requests_.empty()) {
      const bool is_full = children_.size() >= kMostChildren;
      if (is_full && !std::ranges::all_of(children_, &Child::is_killed)) return;
      const ProcessKey process = requests_.front();
      requests_.pop_front();
      if (is_full || !begin(process)) answer_unknown(process);
    }
  }

  bool begin(const ProcessKey& process) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return false;
    Child child{.process = process, .deadline = system_clock().steady() + deadline_};
    child.pipe.reset(ends[0]);
    const UniqueFd into(ends[1]);
    // Counted here: what a child counts is lost with it.
    [[maybe_unused]] const bool hangs = FAULT_ERROR("executables.hang") != 0;
    child.pid = ::fork();
    if (child.pid < 0) return false;
    if (child.pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
      ::close(socket_);
      if (hangs) ::pause();
      const std::string bytes = read_executable(process, build_ids_);
      // The pipe has room for it; a part of it would be answered with "not known".
      static_cast<void>(::write(into.get(), bytes.data(), bytes.size()) < 0);
      ::_exit(0);
    }
    child.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
    children_.push_back(std::move(child));
    return true;
  }

  void wait() {
    std::vector<pollfd> fds;
    const bool has_room = requests_.size() + answers_.size() < kMostRequests;
    fds.push_back({socket_,
                   static_cast<short>((has_room ? POLLIN : 0) | (answers_.empty() ? 0 : POLLOUT)),
                   0});
    std::optional<SteadyTime> next;
    for (const Child& child : children_) {
      fds.push_back({child.pidfd.get(), POLLIN, 0});
      if (!child.is_killed) next = std::min(next.value_or(child.deadline), child.deadline);
    }
    int timeout = -1;
    if (next) {
      const auto left = *next - system_clock().steady();
      timeout = static_cast<int>(
          std::chrono::ceil<std::chrono::milliseconds>(std::max(left, SteadyTime::duration::zero()))
              .count());
    }
    if (::poll(fds.data(), fds.size(), timeout) < 0) return;
    if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) receive();
    for (std::size_t i = children_.size(); i > 0; --i) {
      Child& child = children_[i - 1];
      if (fds[i].revents != 0) {
        finish(child);
        children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i - 1));
      } else if (!child.is_killed && child.deadline <= system_clock().steady()) {
        child.is_killed = true;
        if (FAULT_ERROR("executables.kill") == 0) ::kill(child.pid, SIGKILL);
        answer_unknown(child.process);
      }
    }
  }

  void receive() {
    std::string packet(sizeof(ProcessKey) + 1, '\0');
    const auto received = opener::receive_packet(socket_, packet, false);
    is_open_ = received.has_value();
    ProcessKey process;
    std::string_view bytes = std::string_view(packet).substr(0, received ? received->bytes : 0);
    if (opener::take(bytes, process) && bytes.empty()) requests_.push_back(process);
  }

  void finish(const Child& child) {
    ::waitpid(child.pid, nullptr, 0);
    if (child.is_killed) return;
    std::string buffer(sizeof(FileKey) + kMostExecutableBytes, '\0');
    const ssize_t size = ::read(child.pipe.get(), buffer.data(), buffer.size());
    std::string_view bytes =
        std::string_view(buffer).substr(0, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    FileKey key;
    const bool has_key = opener::take(bytes, key);
    const auto answer = parse_executable_answer(bytes);
    if (!has_key || !answer) return answer_unknown(child.process);
    if (build_ids_.size() >= kMostFiles) build_ids_.clear();
    if (key != FileKey{}) build_ids_.insert_or_assign(key, answer->executable.build_id);
    answers_.emplace_back(bytes);
  }

  void answer_unknown(const ProcessKey& process) {
    answers_.push_back(to_packet({.process = process, .executable = {}}));
  }

  void send_answers() {
    while (!answers_.empty()) {
      const std::string& packet = answers_.front();
      if (::send(socket_, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        is_open_ = errno == EAGAIN || errno == EINTR;
        return;
      }
      answers_.pop_front();
    }
  }

  const int socket_;
  const std::chrono::milliseconds deadline_;
  bool is_open_ = true;
  std::deque<ProcessKey> requests_;
  std::vector<Child> children_;
  std::deque<std::string> answers_;  // that the socket has no room for
  BuildIds build_ids_;
};

}  // namespace

void serve_executables(int socket, std::chrono::milliseconds deadline) noexcept {
  Server(socket, deadline).run();
}

}  // namespace scriptorium

#include "core/capture/spool_opener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "core/capture/foreign_filter.h"
#include "core/capture/opener_protocol.h"
#include "core/capture/trusted_path.h"
#include "core/config/config.h"

namespace scriptorium {
namespace {

using opener::Answer;
using opener::Name;
using opener::Operation;
using opener::Outcome;
using opener::Request;

constexpr std::size_t kMostDescriptors = kMostOpenedNames;
constexpr std::size_t kMostErrorBytes = 2048;
constexpr std::uint32_t kAllowedWatchMask =
    IN_ALL_EVENTS | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK;

// ---- packets
// -------------------------------------------------------------------------------------------------------

bool send_packet(int socket, std::string_view bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};  // NOLINT: sendmsg reads it only
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

struct Packet {
  std::size_t bytes = 0;
  std::vector<UniqueFd> descriptors;
  bool cut = false;  // descriptors or bytes were left out
};

// Nothing if the other side has closed, or the socket fails.
std::optional<Packet> receive_packet(int socket, std::string& buffer, bool with_descriptors) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Without a place for them, the kernel closes descriptors that nobody asked for.
  if (with_descriptors) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return std::nullopt;
  if (received == 0) {
    // An empty packet looks like the end.
    pollfd closed{socket, POLLIN, 0};
    if (::poll(&closed, 1, 0) < 0 || (closed.revents & (POLLHUP | POLLERR)) != 0)
      return std::nullopt;
  }
  Packet packet;
  packet.bytes = static_cast<std::size_t>(received);
  packet.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); with_descriptors && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      packet.descriptors.emplace_back(fd);
    }
  }
  return packet;
}

// ---- the opener's side
// ----------------------------------------------------------------------------------------------

// Components between slashes; nothing if one is "..".
std::optional<std::vector<std::string>> components(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, slash - at);
    if (part == "..") return std::nullopt;
    if (!part.empty() && part != ".") parts.emplace_back(part);
    at = slash + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::size_t from) {
  std::string path;
  for (std::size_t i = from; i < parts.size(); ++i) path += (i == from ? "" : "/") + parts[i];
  return path;
}

// The directories that the configuration calls spools.
class AllowedRoots {
 public:
  explicit AllowedRoots(const OpenerOptions& options) : options_(options) {}

  Result<SpoolRoot> find(const std::string& wanted) {
    if (auto found = look_up(wanted)) return *std::move(found);
    // It may have come in with a reload.
    if (auto read = read_config(); !read) return read.error();
    if (auto found = look_up(wanted)) return *std::move(found);
    return Error{ErrorKind::kPermanent,
                 wanted + " is no `spool` of a [source.NAME] in " + options_.config_file +
                     " or plugins.d beside it, and the spool opener opens nothing else"};
  }

 private:
  std::optional<Result<SpoolRoot>> look_up(const std::string& wanted) const {
    const auto asked = components(wanted);
    for (const std::string& root : roots_) {
      if (wanted == root) return found(root, {});
      const auto allowed = components(root);
      if (!allowed || !asked || asked->size() < allowed->size()) continue;
      if (std::equal(allowed->begin(), allowed->end(), asked->begin()))
        return found(root, join(*asked, allowed->size()));
    }
    return std::nullopt;
  }

  Result<SpoolRoot> found(const std::string& root, std::string below) const {
    // Who can put another directory in the spool's place could have any directory read.
    auto trusted = check_not_writable_by(root, options_.client.uid, options_.client.groups, false);
    if (!trusted) return trusted.error();
    return SpoolRoot::find(root, std::move(below));
  }

  Result<void> trusted(const std::string& path) const {
    return check_not_writable_by(path, options_.client.uid, options_.client.groups, true);
  }

  Result<void> read_config() {
    namespace fs = std::filesystem;
    // Before a byte of it is read: who can write it would else have a parser of his own here.
    if (auto good = trusted(options_.config_file); !good) return good;
    const fs::path folder = fs::path(options_.config_file).parent_path() / "plugins.d";
    std::error_code failed;
    if (fs::is_directory(folder, failed)) {
      if (auto good = trusted(folder); !good) return good;
      for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
           entry.increment(failed)) {
        if (entry->path().extension() != ".toml") continue;
        if (auto good = trusted(entry->path()); !good) return good;
      }
    }
    Problems problems;
    const Config config = load_config(options_.config_file, problems);
    if (!problems.empty()) {
      return Error{ErrorKind::kInvalidConfig, "the spool opener cannot take the configuration: " +
                                                  problems.list().front().text()};
    }
    roots_.clear();
    for (const SourceInstance& source : config.sources) {
      const Value* spool = source.table.find("spool");
      const auto* text = spool != nullptr ? std::get_if<std::string>(&spool->data) : nullptr;
      if (text != nullptr && text->starts_with('/') && text->find('\0') == std::string::npos)
        roots_.push_back(*text);
    }
    return {};
  }

  const OpenerOptions& options_;
  std::vector<std::string> roots_;
};

class Server {
 public:
  Server(int socket, const OpenerOptions& options) : socket_(socket), allowed_(options) {}

  void run() {
    std::string buffer(sizeof(Request) + opener::kMostPathBytes + 1, '\0');
    while (auto packet = receive_packet(socket_, buffer, false)) {
      alive_ = true;
      answer(std::string_view(buffer).substr(0, packet->bytes), packet->cut);
      if (!alive_) return;
    }
  }

 private:
  struct Opened {
    SpoolRoot root;
    UniqueFd inotify;
    UniqueFd fanotify;
    std::uint32_t left_out = 0;  // directories, since kLeaveNothingOut
  };

  void answer(std::string_view bytes, bool cut) {
    Request request;
    request_sequence_ = 0;
    if (cut || !opener::take(bytes, request)) return refuse("not the size of a request");
    request_sequence_ = request.sequence;
    if (request.magic != opener::kMagic) return refuse("no request");
    if (request.path_bytes != bytes.size() || bytes.size() > opener::kMostPathBytes)
      return refuse("the path has another length");
    if (bytes.find('\0') != std::string_view::npos) return refuse("a NUL byte in the path");
    const std::string path(bytes);
    if (request.operation == static_cast<std::uint32_t>(Operation::kOpenRoot))
      return open_root(request, path);
    const bool outside = request.operation == static_cast<std::uint32_t>(Operation::kLeaveOut);
    if (path.starts_with('/') != outside || !components(path))
      return refuse("a path that leads out of the root");
    if (request.root >= roots_.size() || !roots_[request.root]) return refuse("an unknown root");
    serve(static_cast<Operation>(request.operation), request, *roots_[request.root], path);
  }

  void serve(Operation operation, const Request& request, Opened& opened, const std::string& path) {
    switch (operation) {
      case Operation::kStat: {
        auto stat = opened.root.stat(path);
        if (!stat) return fail(stat.error());
        std::string payload;
        opener::append(payload, *stat);
        return done({}, payload);
      }
      case Operation::kOpen: {
        auto fd = opened.root.open(path);
        if (!fd) return fail(fd.error());
        return done({.descriptors = 1}, {}, {fd->get()});
      }
      case Operation::kList: return list(opened.root, path);
      case Operation::kListOpen: return list_open(opened.root, path);
      case Operation::kWatch: {
        if (!opened.inotify) return refuse("a root without inotify");
        if (request.argument == 0 || (request.argument & ~kAllowedWatchMask) != 0)
          return refuse("a mask that is not allowed");
        auto number = opened.root.watch(opened.inotify.get(), path, request.argument);
        if (!number) return fail(number.error());
        return done({.number = *number});
      }
      case Operation::kMark: {
        if (!opened.fanotify) return refuse("a root without fanotify");
        if (auto marked = opened.root.mark(opened.fanotify.get()); !marked)
          return fail(marked.error());
        return done({});
      }
      case Operation::kLeaveOut: return leave_out(opened, path);
      case Operation::kLeaveNothingOut: {
        opened.left_out = 0;
        if (opened.fanotify) leave_nothing_out(opened.fanotify.get());
        return done({});
      }
      case Operation::kCloseRoot: roots_[request.root].reset(); return done({});
      case Operation::kOpenRoot: break;
    }
    refuse("an unknown operation");
  }

  void open_root(const Request& request, const std::string& path) {
    if (!path.starts_with('/')) return refuse("a root that is no absolute path");
    if ((request.argument & ~(opener::kWantInotify | opener::kWantFanotify)) != 0)
      return refuse("unknown notifications");
    const auto place = std::find(roots_.begin(), roots_.end(), std::nullopt);
    const auto number = static_cast<std::size_t>(place - roots_.begin());
    if (number >= opener::kMostRoots)
      return fail(Error{ErrorKind::kExhausted, "more than 64 spools at the same time"});
    auto root = allowed_.find(path);
    if (!root) return fail(root.error());
    OpenedNotifications opened =
        open_notifications(*root, {.inotify = (request.argument & opener::kWantInotify) != 0,
                                   .fanotify = (request.argument & opener::kWantFanotify) != 0});
    Answer answer{.number = static_cast<std::int32_t>(number)};
    std::vector<int> descriptors;
    if (opened.inotify) {
      answer.descriptors |= opener::kWantInotify;
      descriptors.push_back(opened.inotify.get());
    }
    if (opened.fanotify) {
      answer.descriptors |= opener::kWantFanotify;
      descriptors.push_back(opened.fanotify.get());
    }
    std::string payload;
    for (const std::string& text :
         {root->path(), opened.inotify_problem, opened.fanotify_problem}) {
      opener::append_text(payload, text);
    }
    done(answer, payload, descriptors);
    Opened kept{*std::move(root), std::move(opened.inotify), std::move(opened.fanotify)};
    if (number == roots_.size()) {
      roots_.emplace_back(std::move(kept));
    } else {
      roots_[number].emplace(std::move(kept));
    }
  }

  // Such a mark only suppresses notifications, so the client may name any directory. The answer
  // says whether this kernel supports it and nothing more: otherwise the client could find out
  // which directories exist where it may not look.
  void leave_out(Opened& opened, const std::string& path) {
    if (!opened.fanotify) return refuse("a root without fanotify");
    if (opened.left_out >= opener::kMostLeftOut)
      return refuse("too many directories that are left out");
    ++opened.left_out;
    const auto marked = leave_out_directory(opened.fanotify.get(), opened.root.path(), path);
    if (!marked && marked.error().kind() == ErrorKind::kPermanent)
      return fail(Error{ErrorKind::kPermanent, "this kernel cannot leave directories out"});
    done({});
  }

  void list(const SpoolRoot& root, const std::string& path) {
    std::string payload;
    auto listed =
        root.each_name(path, [&](std::string_view name, std::uint64_t inode, bool is_directory) {
          return add_name(payload, name, inode, is_directory, false);
        });
    if (!listed) return fail(listed.error());
    done({}, payload);
  }

  void list_open(const SpoolRoot& root, const std::string& path) {
    auto names = root.list_open(path);
    if (!names) return fail(names.error());
    std::string payload;
    std::vector<int> descriptors;
    for (const auto& [name, fd] : *names) {
      if (fd) descriptors.push_back(fd.get());
      if (!add_name(payload, name.name, name.inode, name.is_directory, static_cast<bool>(fd)))
        return;
    }
    done({.descriptors = static_cast<std::uint32_t>(descriptors.size())}, payload, descriptors);
  }

  // Sends what there is before it where a packet is full. False if nobody listens any more.
  bool add_name(std::string& payload, std::string_view name, std::uint64_t inode, bool is_directory,
                bool opened) {
    if (payload.size() + sizeof(Name) + name.size() > opener::kMostAnswerBytes - sizeof(Answer)) {
      send(Outcome::kMore, {}, payload);
      payload.clear();
    }
    Name head;
    head.inode = inode;
    head.bytes = static_cast<std::uint16_t>(name.size());
    head.is_directory = is_directory ? 1 : 0;
    head.opened = opened ? 1 : 0;
    opener::append(payload, head);
    payload.append(name);
    return alive_;
  }

  void refuse(std::string_view why) {
    fail(Error{ErrorKind::kPermanent, "the spool opener refuses the request: " + std::string(why)});
  }
  void fail(const Error& error) {
    send(Outcome::kError, {.error_kind = static_cast<std::uint32_t>(error.kind())},
         std::string_view(error.message()).substr(0, kMostErrorBytes));
  }
  void done(Answer answer, std::string_view payload = {},
            const std::vector<int>& descriptors = {}) {
    send(Outcome::kDone, answer, payload, descriptors);
  }
  void send(Outcome outcome, Answer answer, std::string_view payload,
            const std::vector<int>& descriptors = {}) {
    answer.sequence = request_sequence_;
    answer.outcome = static_cast<std::uint32_t>(outcome);
    answer.payload_bytes = static_cast<std::uint32_t>(payload.size());
    packet_.clear();
    opener::append(packet_, answer);
    packet_.append(payload);
    if (!send_packet(socket_, packet_, descriptors)) alive_ = false;
  }

  const int socket_;
  AllowedRoots allowed_;
  std::vector<std::optional<Opened>> roots_;
  std::uint32_t request_sequence_ = 0;
  std::string packet_;
  bool alive_ = true;
};

// ---- the process
// ----------------------------------------------------------------------------------------------------

// What `ps` shows. The arguments' memory begins where glibc's copy of argv[0] points; more room
// than they had there is not.
void set_title(std::string_view title) {
  ::prctl(PR_SET_NAME, "spool-opener", 0, 0, 0);
  const auto arguments = read_file("/proc/self/cmdline");
  if (!arguments || arguments->empty() ||
      ::strcmp(arguments->c_str(), program_invocation_name) != 0)
    return;
  char* place = program_invocation_name;
  std::fill_n(place, arguments->size(), '\0');
  std::copy_n(title.begin(), std::min(title.size(), arguments->size() - 1), place);
}

constexpr int kSocket = STDERR_FILENO + 1;

// Standard error stays, as a place for last words; input and output become /dev/null, `socket`
// kSocket; all else is closed.
bool keep_only_socket(int socket) {
  // Above all that is closed or replaced on the way: a daemon may have been started without some of
  // the first three.
  const int safe = ::fcntl(socket, F_DUPFD, kSocket + 2);
  if (safe < 0 || ::dup2(safe, kSocket) < 0) return false;
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(null, STDOUT_FILENO) < 0) return false;
  return ::syscall(SYS_close_range, kSocket + 1, ~0U, 0) == 0;
}

[[noreturn]] void run_process(int socket, pid_t parent, const OpenerOptions& options,
                              CapabilitySet keep) noexcept {
  constexpr int kFailed = 70;
  set_title("scriptorium: spool opener");
  // SIGTERM and SIGINT come to all processes of a service or terminal: the daemon drains first, and
  // then closes the socket.
  sigset_t left_to_the_daemon;
  sigemptyset(&left_to_the_daemon);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&left_to_the_daemon, signal);
  ::pthread_sigmask(SIG_SETMASK, &left_to_the_daemon, nullptr);
  ::signal(SIGCHLD, SIG_DFL);
  // A working directory would keep a file system from being unmounted.
  if (::chdir("/") != 0 || !keep_only_socket(socket)) ::_exit(kFailed);
  if (!keep_only_capabilities(keep)) ::_exit(kFailed);
  const rlimit descriptors{256, 256};
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_NOFILE, &descriptors);
  ::setrlimit(RLIMIT_CORE, &no_core);
  // Neither trace nor memory of this process for others of our user. After the capabilities: giving
  // them up may reset it.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  // Beside the end of the socket, which a process that the daemon has left behind could keep open.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != parent) ::_exit(0);
  serve_spool(kSocket, options);
  ::_exit(0);
}

}  // namespace

void serve_spool(int socket, const OpenerOptions& options) noexcept {
  Server(socket, options).run();
}

// ---- the daemon's side
// ----------------------------------------------------------------------------------------------

class SpoolOpener::Connection {
 public:
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}

  struct Reply {
    Answer answer;
    std::string payload;
    std::vector<UniqueFd> descriptors;
  };

  // The last answer to a request; those before it, of a list, go to `more`.
  using More = std::function<bool(std::string_view payload)>;
  Result<Reply> call(Operation operation, std::uint32_t root, std::uint32_t argument,
                     std::string_view path, const More& more = {}) {
    if (path.size() > opener::kMostPathBytes)
      return system_error("open " + std::string(path.substr(0, 64)) + "...", ENAMETOOLONG);
    // Question and answer belong together, so the lock is held over the two: a few microseconds,
    // and the opener's own I/O.
    const std::lock_guard lock(mutex_);
    if (broken_) return gone();
    Request request;
    request.sequence = ++sequence_;
    request.operation = static_cast<std::uint32_t>(operation);
    request.root = root;
    request.argument = argument;
    request.path_bytes = static_cast<std::uint32_t>(path.size());
    packet_.clear();
    opener::append(packet_, request);
    packet_.append(path);
    if (!send_packet(socket_.get(), packet_, {})) return broken();
    for (;;) {
      auto packet = receive_packet(socket_.get(), buffer_, true);
      if (!packet) return broken();
      std::string_view bytes = std::string_view(buffer_).substr(0, packet->bytes);
      Reply reply;
      if (!opener::take(bytes, reply.answer) || reply.answer.magic != opener::kMagic ||
          reply.answer.sequence != request.sequence || reply.answer.payload_bytes != bytes.size()) {
        return broken();
      }
      switch (static_cast<Outcome>(reply.answer.outcome)) {
        case Outcome::kMore:
          if (!more || !more(bytes)) return broken();
          continue;
        case Outcome::kError:
          return Error{
              static_cast<ErrorKind>(std::min(reply.answer.error_kind,
                                              static_cast<std::uint32_t>(ErrorKind::kCorrupt))),
              std::string(bytes)};
        case Outcome::kDone: break;
      }
      if (packet->cut) {
        return Error{
            ErrorKind::kExhausted,
            "no file descriptor is left to take one from the spool opener; raise LimitNOFILE"};
      }
      reply.payload = bytes;
      reply.descriptors = std::move(packet->descriptors);
      return reply;
    }
  }

 private:
  static Error gone() { return {ErrorKind::kTransient, "the spool opener has ended"}; }
  Error broken() {
    broken_ = true;
    return gone();
  }

  const UniqueFd socket_;
  std::mutex mutex_;  // guards all below
  std::uint32_t sequence_ = 0;
  bool broken_ = false;
  std::string packet_;
  std::string buffer_ = std::string(opener::kMostAnswerBytes, '\0');
};

class SpoolOpener::Access final : public SpoolAccess {
 public:
  Access(Connection& connection, std::uint32_t number, std::string root, UniqueFd inotify,
         UniqueFd fanotify)
      : connection_(connection),
        number_(number),
        root_(std::move(root)),
        inotify_(std::move(inotify)),
        fanotify_(std::move(fanotify)) {}
  ~Access() override { static_cast<void>(connection_.call(Operation::kCloseRoot, number_, 0, {})); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  const std::string& root() const override { return root_; }
  int inotify_fd() const override { return inotify_.get(); }
  int fanotify_fd() const override { return fanotify_.get(); }

  Result<FileStat> stat(const std::string& path) override {
    auto reply = connection_.call(Operation::kStat, number_, 0, path);
    if (!reply) return reply.error();
    FileStat stat;
    std::string_view payload = reply->payload;
    if (!opener::take(payload, stat)) return misunderstood();
    return stat;
  }

  Result<std::vector<SpoolName>> list(const std::string& path) override {
    std::vector<SpoolName> names;
    const auto take = [&names](const Name& head, std::string_view name) {
      names.push_back({std::string(name), head.inode, head.is_directory != 0});
    };
    auto reply = call_for_names(Operation::kList, path, take);
    if (!reply) return reply.error();
    return names;
  }

  Result<std::vector<OpenedName>> list_open(const std::string& path) override {
    std::vector<OpenedName> names;
    std::vector<std::size_t> opened;
    const auto take = [&](const Name& head, std::string_view name) {
      if (head.opened != 0) opened.push_back(names.size());
      names.push_back({{std::string(name), head.inode, head.is_directory != 0}, {}});
    };
    auto reply = call_for_names(Operation::kListOpen, path, take);
    if (!reply) return reply.error();
    if (reply->descriptors.size() != opened.size()) return misunderstood();
    for (std::size_t i = 0; i < opened.size(); ++i)
      names[opened[i]].fd = std::move(reply->descriptors[i]);
    return names;
  }

  Result<UniqueFd> open(const std::string& path) override {
    auto reply = connection_.call(Operation::kOpen, number_, 0, path);
    if (!reply) return reply.error();
    if (reply->descriptors.size() != 1) return misunderstood();
    return std::move(reply->descriptors.front());
  }

  Result<int> watch(const std::string& path, std::uint32_t mask) override {
    auto reply = connection_.call(Operation::kWatch, number_, mask, path);
    if (!reply) return reply.error();
    return reply->answer.number;
  }
  // This needs no rights, as the descriptor is ours.
  void unwatch(int number) override { ::inotify_rm_watch(inotify_.get(), number); }
  // These would need none either: the kernel accepts marks on a group's descriptor from any holder,
  // and a mark on a directory delivers its files as open descriptors. For that reason the daemon's
  // system call filter denies fanotify_mark altogether.
  Result<void> leave_out(const std::string& directory) override {
    auto reply = connection_.call(Operation::kLeaveOut, number_, 0, directory);
    if (!reply) return reply.error();
    return {};
  }
  void leave_nothing_out() override {
    static_cast<void>(connection_.call(Operation::kLeaveNothingOut, number_, 0, {}));
  }

  Result<void> mark() override {
    auto reply = connection_.call(Operation::kMark, number_, 0, {});
    if (!reply) return reply.error();
    return {};
  }

  static Error misunderstood() {
    return {ErrorKind::kTransient, "the spool opener's answer cannot be understood"};
  }

 private:
  template <typename Take>
  Result<Connection::Reply> call_for_names(Operation operation, const std::string& path,
                                           const Take& take) {
    const auto read = [&take](std::string_view payload) {
      while (!payload.empty()) {
        Name head;
        if (!opener::take(payload, head) || payload.size() < head.bytes) return false;
        take(head, payload.substr(0, head.bytes));
        payload.remove_prefix(head.bytes);
      }
      return true;
    };
    auto reply = connection_.call(operation, number_, 0, path, read);
    if (!reply) return reply.error();
    if (!read(reply->payload)) return misunderstood();
    return reply;
  }

  Connection& connection_;
  const std::uint32_t number_;
  const std::string root_;
  const UniqueFd inotify_;
  const UniqueFd fanotify_;
};

SpoolOpener::SpoolOpener(pid_t pid, UniqueFd pidfd, UniqueFd socket, CapabilitySet capabilities)
    : pid_(pid),
      pidfd_(std::move(pidfd)),
      capabilities_(capabilities),
      connection_(std::make_unique<Connection>(std::move(socket))) {}

Result<std::unique_ptr<SpoolOpener>> SpoolOpener::start(const OpenerOptions& options,
                                                        CapabilitySet keep) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return system_error("socketpair", errno);
  UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return system_error("starting the spool opener: fork", errno);
  if (pid == 0) run_process(theirs.get(), parent, options, keep);
  theirs.reset();
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int code = errno;
  // By number: the constructor is private.
  std::unique_ptr<SpoolOpener> opener(
      new SpoolOpener(pid, std::move(pidfd), std::move(ours), keep));
  if (!opener->pidfd_) return system_error("pidfd_open (Linux 5.3)", code);
  // An unknown root: whatever the answer, it has given up what it had to and serves.
  auto first = opener->connection_->call(Operation::kStat, opener::kMostRoots, 0, {});
  if (!first && first.error().kind() == ErrorKind::kTransient) {
    return Error{
        ErrorKind::kTransient,
        "the spool opener ended as it started; may this process keep the capabilities it has?"};
  }
  return opener;
}

SpoolOpener::~SpoolOpener() {
  connection_.reset();  // which ends it, unless it hangs in a file system; then it ends with us
  constexpr int kMostMs = 2000;
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (::poll(&ended, 1, kMostMs) > 0) ::waitpid(pid_, nullptr, 0);
}

Result<OpenedAccess> SpoolOpener::open(const std::string& root, Notifications wanted) {
  const std::uint32_t argument =
      (wanted.inotify ? opener::kWantInotify : 0U) | (wanted.fanotify ? opener::kWantFanotify : 0U);
  auto reply = connection_->call(Operation::kOpenRoot, 0, argument, root);
  if (!reply) return reply.error();
  std::string_view payload = reply->payload;
  OpenedAccess opened;
  std::string resolved;
  if (!opener::take_text(payload, resolved) ||
      !opener::take_text(payload, opened.inotify_problem) ||
      !opener::take_text(payload, opened.fanotify_problem)) {
    return Access::misunderstood();
  }
  std::array<UniqueFd, kMostDescriptors> descriptors;
  std::size_t next = 0;
  for (const std::uint32_t which : {opener::kWantInotify, opener::kWantFanotify}) {
    if ((reply->answer.descriptors & which) == 0) continue;
    if (next == reply->descriptors.size()) return Access::misunderstood();
    descriptors.at(which - 1) = std::move(reply->descriptors[next++]);
  }
  opened.access = std::make_unique<Access>(
      *connection_, static_cast<std::uint32_t>(reply->answer.number), std::move(resolved),
      std::move(descriptors[0]), std::move(descriptors[1]));
  return opened;
}

Result<OpenedAccess> open_spool(SpoolOpener* opener, const std::string& root,
                                Notifications wanted) {
  if (opener == nullptr) return open_direct_access(root, wanted);
  auto opened = opener->open(root, wanted);
  if (opened || opened.error().kind() != ErrorKind::kPermanent) return opened;
  auto direct = open_direct_access(root, wanted);
  if (direct && !direct->fanotify_problem.empty())
    direct->fanotify_problem = opened.error().message();
  return direct;
}

}  // namespace scriptorium

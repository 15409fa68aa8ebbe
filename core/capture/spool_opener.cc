#include "core/capture/spool_opener.h"

#include <sys/inotify.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#include "core/capture/opener_protocol.h"

namespace scriptorium {
namespace {

using opener::Answer;
using opener::Name;
using opener::Operation;
using opener::Request;

}  // namespace

class SpoolOpener::Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {}

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
    // Request and answer belong together, so the lock is held over both: a few microseconds, and
    // the opener's own I/O.
    const std::lock_guard lock(mutex_);
    if (broken_) return ended();
    const Request request{.sequence = ++sequence_,
                          .operation = static_cast<std::uint32_t>(operation),
                          .root = root,
                          .argument = argument,
                          .path_bytes = static_cast<std::uint32_t>(path.size())};
    packet_.clear();
    opener::append(packet_, request);
    packet_.append(path);
    if (!opener::send_packet(socket_, packet_, {})) return broken();
    for (;;) {
      auto packet = opener::receive_packet(socket_, buffer_, true);
      if (!packet) return broken();
      std::string_view bytes = std::string_view(buffer_).substr(0, packet->bytes);
      Reply reply;
      if (!opener::take(bytes, reply.answer) || reply.answer.magic != opener::kMagic ||
          reply.answer.sequence != request.sequence || reply.answer.payload_bytes != bytes.size()) {
        return broken();
      }
      switch (static_cast<opener::Outcome>(reply.answer.outcome)) {
        case opener::Outcome::kMore:
          if (!more || !more(bytes)) return broken();
          continue;
        case opener::Outcome::kError:
          return Error{
              static_cast<ErrorKind>(std::min(reply.answer.error_kind,
                                              static_cast<std::uint32_t>(ErrorKind::kCorrupt))),
              std::string(bytes)};
        case opener::Outcome::kDone: break;
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
  static Error ended() { return {ErrorKind::kTransient, "the spool opener has ended"}; }
  Error broken() {
    broken_ = true;
    return ended();
  }

  const int socket_;
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
  ~Access() override { static_cast<void>(request(Operation::kCloseRoot, {})); }
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
    auto reply = call_for_names(Operation::kList, path,
                                [&](SpoolName name, bool) { names.push_back(std::move(name)); });
    if (!reply) return reply.error();
    return names;
  }

  Result<std::vector<OpenedName>> list_open(const std::string& path) override {
    std::vector<OpenedName> names;
    std::vector<std::size_t> opened;
    auto reply = call_for_names(Operation::kListOpen, path, [&](SpoolName name, bool is_open) {
      if (is_open) opened.push_back(names.size());
      names.push_back({std::move(name), {}});
    });
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
  // This needs no rights, because the descriptor is ours.
  void unwatch(int number) override { ::inotify_rm_watch(inotify_.get(), number); }
  // Marks would need none either: the kernel accepts marks on a group's descriptor from any holder,
  // and a mark on a directory delivers its files as open descriptors. The daemon's system call
  // filter therefore denies fanotify_mark altogether, and the opener sets the marks.
  Result<void> leave_out(const std::string& directory) override {
    return request(Operation::kLeaveOut, directory);
  }
  void leave_nothing_out() override { static_cast<void>(request(Operation::kLeaveNothingOut, {})); }
  Result<void> mark() override { return request(Operation::kMark, {}); }

  static Error misunderstood() {
    return {ErrorKind::kTransient, "the spool opener's answer cannot be understood"};
  }

 private:
  Result<void> request(Operation operation, std::string_view path) {
    auto reply = connection_.call(operation, number_, 0, path);
    if (!reply) return reply.error();
    return {};
  }
  template <typename Take>
  Result<Connection::Reply> call_for_names(Operation operation, const std::string& path,
                                           const Take& take) {
    const auto read = [&take](std::string_view payload) {
      while (!payload.empty()) {
        Name head;
        if (!opener::take(payload, head) || payload.size() < head.bytes) return false;
        take({std::string(payload.substr(0, head.bytes)), head.inode, head.is_directory != 0},
             head.opened != 0);
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

SpoolOpener::SpoolOpener(HelperProcess process)
    : process_(std::move(process)), connection_(std::make_unique<Connection>(process_.socket())) {}
SpoolOpener::~SpoolOpener() = default;

Result<std::unique_ptr<SpoolOpener>> SpoolOpener::start(const OpenerOptions& options,
                                                        CapabilitySet keep) {
  auto process =
      HelperProcess::start({.name = "spool-opener", .keep = keep, .serve = [&](int socket) {
                              serve_spool(socket, options);
                            }});
  if (!process) return process.error();
  // With new, because the constructor is private.
  std::unique_ptr<SpoolOpener> opener(new SpoolOpener(*std::move(process)));
  // The root is unknown, so the answer is an error; but any answer shows that the opener has given
  // up its rights and serves.
  auto first = opener->connection_->call(Operation::kStat, opener::kMostRoots, 0, {});
  if (!first && first.error().kind() == ErrorKind::kTransient) {
    return Error{
        ErrorKind::kTransient,
        "the spool opener ended as it started; may this process keep the capabilities it has?"};
  }
  return opener;
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
  std::array<UniqueFd, opener::kMostDescriptors> descriptors;
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

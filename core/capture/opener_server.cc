#include <sys/inotify.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/path.h"
#include "core/capture/foreign_filter.h"
#include "core/capture/opener_protocol.h"
#include "core/capture/spool_opener.h"
#include "core/capture/trusted_path.h"
#include "core/config/config.h"

// The spool opener's side of the protocol. It trusts nothing that the client sends.
namespace scriptorium {
namespace {

using opener::Answer;
using opener::Name;
using opener::Operation;
using opener::Request;

constexpr std::size_t kMostErrorBytes = 2048;
constexpr std::uint32_t kAllowedWatchMask =
    IN_ALL_EVENTS | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK;

// The names between the slashes; nothing if one is "..".
std::optional<std::vector<std::string>> components(std::string_view path) {
  auto names = names_of(path);
  if (std::find(names.begin(), names.end(), "..") != names.end()) return std::nullopt;
  return names;
}

// The directories that the configuration calls spools.
class AllowedRoots {
 public:
  explicit AllowedRoots(const OpenerOptions& options) : options_(options) {}

  Result<SpoolRoot> find(const std::string& wanted) {
    if (auto found = look_up(wanted)) return *std::move(found);
    // The spool may have been added by a reload.
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
      const auto [end, rest] = std::mismatch(allowed->begin(), allowed->end(), asked->begin());
      if (end != allowed->end()) continue;
      return found(root, std::accumulate(rest, asked->end(), std::string{}, join_path));
    }
    return std::nullopt;
  }

  Result<SpoolRoot> found(const std::string& root, std::string below) const {
    // A client that can replace the spool by another directory could have any directory read.
    auto trusted = check_not_writable_by(root, options_.client.uid, options_.client.groups, false);
    if (!trusted) return trusted.error();
    return SpoolRoot::find(root, std::move(below));
  }

  Result<void> trusted(const std::string& path) const {
    return check_not_writable_by(path, options_.client.uid, options_.client.groups, true);
  }

  Result<void> read_config() {
    namespace fs = std::filesystem;
    // Checked before a byte of it is read: otherwise a client that can write it could feed the
    // parser of this process.
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
    while (auto packet = opener::receive_packet(socket_, buffer, false)) {
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
        return fd ? done({.descriptors = 1}, {}, {fd->get()}) : fail(fd.error());
      }
      case Operation::kList: return list(opened.root, path);
      case Operation::kListOpen: return list_open(opened.root, path);
      case Operation::kWatch: {
        if (!opened.inotify) return refuse("a root without inotify");
        if (request.argument == 0 || (request.argument & ~kAllowedWatchMask) != 0)
          return refuse("a mask that is not allowed");
        auto number = opened.root.watch(opened.inotify.get(), path, request.argument);
        return number ? done({.number = *number}) : fail(number.error());
      }
      case Operation::kMark: {
        if (!opened.fanotify) return refuse("a root without fanotify");
        auto marked = opened.root.mark(opened.fanotify.get());
        return marked ? done({}) : fail(marked.error());
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
    if (number == roots_.size()) roots_.emplace_back();
    roots_[number].emplace(std::move(kept));
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
    auto listed = root.each_name(
        path, [&](const SpoolName& name, int) { return add_name(payload, name, false); });
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
      if (!add_name(payload, name, static_cast<bool>(fd))) return;
    }
    done({.descriptors = static_cast<std::uint32_t>(descriptors.size())}, payload, descriptors);
  }

  // A packet that is full is sent first. False if nobody listens any more.
  bool add_name(std::string& payload, const SpoolName& name, bool opened) {
    const std::size_t size = sizeof(Name) + name.name.size();
    if (payload.size() + size > opener::kMostAnswerBytes - sizeof(Answer)) {
      send(opener::Outcome::kMore, {}, payload);
      payload.clear();
    }
    opener::append(payload, Name{.inode = name.inode,
                                 .bytes = static_cast<std::uint16_t>(name.name.size()),
                                 .is_directory = name.is_directory,
                                 .opened = opened});
    payload.append(name.name);
    return alive_;
  }

  void refuse(std::string_view why) {
    fail(Error{ErrorKind::kPermanent, "the spool opener refuses the request: " + std::string(why)});
  }
  void fail(const Error& error) {
    send(opener::Outcome::kError, {.error_kind = static_cast<std::uint32_t>(error.kind())},
         std::string_view(error.message()).substr(0, kMostErrorBytes));
  }
  void done(Answer answer, std::string_view payload = {},
            const std::vector<int>& descriptors = {}) {
    send(opener::Outcome::kDone, answer, payload, descriptors);
  }
  void send(opener::Outcome outcome, Answer answer, std::string_view payload,
            const std::vector<int>& descriptors = {}) {
    answer.sequence = request_sequence_;
    answer.outcome = static_cast<std::uint32_t>(outcome);
    answer.payload_bytes = static_cast<std::uint32_t>(payload.size());
    packet_.clear();
    opener::append(packet_, answer);
    packet_.append(payload);
    if (!opener::send_packet(socket_, packet_, descriptors)) alive_ = false;
  }

  const int socket_;
  AllowedRoots allowed_;
  std::vector<std::optional<Opened>> roots_;
  std::uint32_t request_sequence_ = 0;
  std::string packet_;
  bool alive_ = true;
};

}  // namespace

void serve_spool(int socket, const OpenerOptions& options) noexcept {
  Server(socket, options).run();
}

}  // namespace scriptorium

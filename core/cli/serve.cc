#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/accounts.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/open_stores.h"
#include "core/cli/serve_page.h"
#include "core/cli/signal_stop.h"
#include "core/daemon/listener.h"
#include "core/daemon/log.h"
#include "core/daemon/process.h"
#include "core/serve/server.h"

namespace scriptorium::cli {
namespace {

// Each user's queries are their own business, but users of all groups may ask.
constexpr unsigned kSocketMode = 0666;

// FileDescriptorName= in scriptorium-page.socket; another socket is that of the questions.
constexpr const char* kPageSocketName = "page";
constexpr const char* kQuerySocketName = "query";

// The sockets that systemd made, by their names (sd_listen_fds_with_names(3)).
std::map<std::string, UniqueFd> passed_sockets() {
  constexpr int kFirst = 3;
  const auto text_of = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  std::map<std::string, UniqueFd> sockets;
  const int count = parse_number<int>(text_of("LISTEN_FDS")).value_or(0);
  if (parse_number<std::int64_t>(text_of("LISTEN_PID")) != ::getpid()) return sockets;
  std::istringstream names(text_of("LISTEN_FDNAMES"));
  for (int fd = kFirst; fd < kFirst + count; ++fd) {
    std::string name;
    std::getline(names, name, ':');
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    sockets.try_emplace(name == kPageSocketName ? name : kQuerySocketName, fd);
  }
  return sockets;
}

// Removes the socket at the end.
class SocketFile {
 public:
  explicit SocketFile(std::string path) : path_(std::move(path)) {}
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

 private:
  const std::string path_;
};

// One that systemd passed, else one made here; nothing: a message was printed.
UniqueFd open_socket(std::map<std::string, UniqueFd>& passed, const char* name,
                     const std::string& path, const char* key, Console& console) {
  if (const auto found = passed.find(name); found != passed.end()) return std::move(found->second);
  ::umask(077);
  auto made = listen_unix(path, kSocketMode, key);
  if (made) return *std::move(made);
  console.err << "scriptorium: " << made.error().message() << "\n";
  return UniqueFd();
}

// Nothing: a message was printed.
std::optional<std::vector<uid_t>> uids_of(const std::vector<std::string>& logins,
                                          Console& console) {
  std::vector<uid_t> uids;
  for (const std::string& login : logins) {
    const auto user = find_user(login);
    if (!user || !*user) {
      console.err << "scriptorium: serve.proxy_users: "
                  << (user ? "there is no user " + printable(login) : user.error().message())
                  << "\n";
      return std::nullopt;
    }
    uids.push_back((*user)->uid);
  }
  return uids;
}

}  // namespace

int serve_command(const Arguments& arguments, Console& console) {
  if (arguments.open) return open_page(arguments, console);
  const SignalStop signal(console.owns_process);
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  // The service may not read the secrets of other plugins.
  if (print_problems(problems, console) && setup.sinks.empty()) return kExitConfig;
  const OpenStores open = open_local_stores(std::move(setup), "", console);
  const std::vector<query::Store> stores = query::indexed(open.list());
  if (stores.empty()) return say_no_index(open, console);

  const Config& config = open.setup().config;
  const ServeConfig serve = config.serve.value_or(ServeConfig{});
  for (const std::string& name : serve.reader_groups) {
    if (const auto group = find_group(name); group && !*group)
      console.err << "scriptorium: serve.reader_groups: there is no group " << name << "\n";
  }
  const auto proxies = uids_of(serve.proxy_users, console);
  if (!proxies) return kExitConfig;
  auto passed = passed_sockets();
  const bool is_passed = !passed.empty();
  if (!is_passed && serve::RemoteStore::probe(serve.socket))
    return fail(console, "another query service answers on " + serve.socket, kExitUnavailable);
  const auto log = make_stderr_logger(parse_log_level(config.core.log_level));
  const std::function<Result<void>(const Logger::Fields&)> record =
      [](const Logger::Fields& fields) {
        return write_log_line("SERVE_ANSWERED", "a question was answered", fields);
      };

  // Each removes its socket at the end.
  std::deque<SocketFile> files;
  std::optional<serve::Server> questions;
  if (!is_passed || passed.contains(kQuerySocketName)) {
    UniqueFd socket = open_socket(passed, kQuerySocketName, serve.socket, "serve.socket", console);
    if (!socket) return kExitCannotCreate;
    if (!is_passed) files.emplace_back(serve.socket);
    questions.emplace(
        std::move(socket),
        serve::Server::Service{
            .find_caller = [&](uid_t uid) { return serve::find_caller(uid, serve.reader_groups); },
            .record = record,
            .stores = stores},
        *log);
  }
  std::optional<page::Server> pages;
  if (passed.contains(kPageSocketName) || (!is_passed && !proxies->empty())) {
    if (proxies->empty())
      console.err << "scriptorium: serve.proxy_users is empty, so the page answers nobody\n";
    UniqueFd socket =
        open_socket(passed, kPageSocketName, serve.page_socket, "serve.page_socket", console);
    if (!socket) return kExitCannotCreate;
    if (!is_passed) files.emplace_back(serve.page_socket);
    pages.emplace(std::move(socket),
                  page_service(
                      std::make_unique<page::ProxyGate>(*proxies), stores,
                      [&](const std::string& login) {
                        return serve::find_caller(login, serve.reader_groups);
                      },
                      record),
                  *log);
  }
  if (questions) questions->start();
  if (pages) pages->start();
  log->info("SERVE_STARTED", "answering questions about jobs",
            {{"socket", is_passed ? "of systemd" : serve.socket},
             {"page", !pages      ? "none"
                      : is_passed ? "of systemd"
                                  : serve.page_socket}});
  process::notify("READY=1");
  wait_for(signal.token());
  process::notify("STOPPING=1");
  return kExitGood;
}

}  // namespace scriptorium::cli

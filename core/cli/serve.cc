#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/accounts.h"
#include "core/base/number.h"
#include "core/base/stop_signal.h"
#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/open_stores.h"
#include "core/cli/signal_stop.h"
#include "core/daemon/listener.h"
#include "core/daemon/log.h"
#include "core/daemon/process.h"
#include "core/serve/server.h"

namespace scriptorium::cli {
namespace {

// Each user's queries are their own business, but users of all groups may ask.
constexpr unsigned kSocketMode = 0666;

// The socket that systemd made (sd_listen_fds(3)); empty if it made none.
UniqueFd passed_socket() {
  constexpr int kFirst = 3;
  const auto number_in = [](const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? std::nullopt : parse_number<std::int64_t>(std::string_view(text));
  };
  if (number_in("LISTEN_PID") != ::getpid() || number_in("LISTEN_FDS") != 1) return UniqueFd();
  ::fcntl(kFirst, F_SETFD, FD_CLOEXEC);
  ::fcntl(kFirst, F_SETFL, ::fcntl(kFirst, F_GETFL) | O_NONBLOCK);
  return UniqueFd(kFirst);
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

void wait_for(const std::stop_token& stop) {
  const StopSignal ended(stop);
  pollfd fd{ended.fd(), POLLIN, 0};
  while (!stop.stop_requested()) ::poll(&fd, 1, -1);
}

}  // namespace

int serve_command(const Arguments& arguments, Console& console) {
  const SignalStop signal(console.owns_process);
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  // The service may not read the secrets of other plugins.
  if (print_problems(problems, console) && setup.sinks.empty()) return kExitConfig;
  const OpenStores open = open_local_stores(std::move(setup), "", console);
  serve::Server::Service service{.stores = query::indexed(open.list())};
  if (service.stores.empty() && !open.closed().empty()) {
    say_closed(open, console);
    return kExitUnavailable;
  }
  if (service.stores.empty()) {
    return fail(console,
                "no sink of the configuration has an index that could be served; "
                "docs/serve.md says how to add one",
                kExitConfig);
  }

  const Config& config = open.setup().config;
  const ServeConfig serve = config.serve.value_or(ServeConfig{});
  for (const std::string& name : serve.reader_groups) {
    if (const auto group = find_group(name); group && !*group)
      console.err << "scriptorium: serve.reader_groups: there is no group " << name << "\n";
  }
  UniqueFd listening = passed_socket();
  const bool is_passed = static_cast<bool>(listening);
  if (!is_passed) {
    if (serve::RemoteStore::probe(serve.socket))
      return fail(console, "another query service answers on " + serve.socket, kExitUnavailable);
    ::umask(077);
    auto made = listen_unix(serve.socket, kSocketMode, "serve.socket");
    if (!made) return fail(console, made.error().message(), kExitCannotCreate);
    listening = *std::move(made);
  }
  const SocketFile file(is_passed ? "" : serve.socket);
  service.find_caller = [&](uid_t uid) { return serve::find_caller(uid, serve.reader_groups); };
  service.record = [](const Logger::Fields& fields) {
    return write_log_line("SERVE_ANSWERED", "a question was answered", fields);
  };
  const auto log = make_stderr_logger(parse_log_level(config.core.log_level));
  serve::Server server(std::move(listening), std::move(service), *log);
  server.start();
  log->info("SERVE_STARTED", "answering questions about jobs",
            {{"socket", is_passed ? "of systemd" : serve.socket}});
  process::notify("READY=1");
  wait_for(signal.token());
  process::notify("STOPPING=1");
  return kExitGood;
}

}  // namespace scriptorium::cli

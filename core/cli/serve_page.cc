#include "core/cli/serve_page.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/base/accounts.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/stop_signal.h"
#include "core/base/text.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/signal_stop.h"
#include "core/daemon/listener.h"
#include "core/daemon/log.h"
#include "core/page/pages.h"

namespace scriptorium::cli {
namespace {

struct LocalDoor {
  UniqueFd socket;
  std::string host;  // "127.83.12.9:41235"
};

// Browsers send cookies to every port of an address, so that another user's server could read ours;
// an address that nobody can guess has no other servers.
Result<LocalDoor> listen_on_own_address() {
  const auto random = random_hex(3);
  if (!random) return random.error();
  std::string address = "127";
  const std::string bytes = hex_decode(*random).value();
  for (const char byte : bytes)
    address += '.' + std::to_string(static_cast<unsigned char>(byte) % 254U + 1U);
  auto socket = listen_tcp(address, 0, "this host");
  if (!socket) return socket.error();
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(socket->get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return system_error("getsockname", errno);
  return LocalDoor{*std::move(socket), address + ":" + std::to_string(ntohs(bound.sin_port))};
}

// A browser's command line is visible to everybody on the host, so that it gets a file that leads
// to the address.
class BrowserFile {
 public:
  BrowserFile() = default;
  BrowserFile(const BrowserFile&) = delete;
  BrowserFile& operator=(const BrowserFile&) = delete;
  ~BrowserFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  // Opens the address in the desktop's browser, if this process has a desktop.
  void open(const std::string& address) {
    if (std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr) return;
    std::error_code ignored;
    path_ = (std::filesystem::temp_directory_path(ignored) / "scriptorium-XXXXXX.html").string();
    const UniqueFd file(::mkstemps(path_.data(), 5));  // 0600
    if (!file) return path_.clear();
    if (!write_fd(file.get(),
                  "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=" + address + "\">"))
      return;
    std::string program = "xdg-open";
    std::array<char*, 3> arguments = {program.data(), path_.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    pid_t pid = 0;  // not waited for: some desktops' xdg-open is the browser itself
    static_cast<void>(
        ::posix_spawnp(&pid, program.c_str(), &actions, nullptr, arguments.data(), environ));
    ::posix_spawn_file_actions_destroy(&actions);
  }

 private:
  std::string path_;
};

}  // namespace

page::Server::Service page_service(
    std::unique_ptr<page::Gate> gate, std::vector<query::Store> stores,
    std::function<Result<serve::Caller>(const std::string&)> find_caller,
    std::function<Result<void>(const Logger::Fields&)> record) {
  return {.gate = std::move(gate),
          .answer = [stores = std::move(stores), find_caller = std::move(find_caller),
                     record = std::move(record)](const page::Request& request, std::stop_token stop,
                                                 SteadyTime deadline) {
            return page::answer(request, {.stores = stores,
                                          .find_caller = find_caller,
                                          .record = record,
                                          .stop = std::move(stop),
                                          .deadline = deadline});
          }};
}

int open_page(const Arguments& arguments, Console& console) {
  const SignalStop signal(console.owns_process);
  int code = kExitGood;
  const auto open = open_stores_or_say(arguments, console, code);
  if (!open) return code;
  std::vector<query::Store> stores = query::indexed(open->list());
  if (stores.empty()) return say_no_index(*open, console);
  const auto user = find_user(::getuid());
  const std::string login = user && *user ? (*user)->name : "uid " + std::to_string(::getuid());
  auto door = listen_on_own_address();
  if (!door) return fail(console, door.error().message(), kExitCannotCreate);
  auto gate = page::KeyGate::create(login, door->host);
  if (!gate) return fail(console, gate.error().message(), kExitCannotCreate);
  const std::string address = (*gate)->address();

  const auto log = make_command_logger();
  page::Server server(std::move(door->socket),
                      page_service(
                          *std::move(gate), std::move(stores),
                          // The stores have what this user may read, and nothing else.
                          [](const std::string& name) {
                            return serve::Caller{
                                .uid = ::getuid(), .login = name, .visibility = Visibility{}};
                          },
                          [](const Logger::Fields&) { return Result<void>(); }),
                      *log);
  server.start();
  console.out << "Open this address in a browser on this host. It works once.\n\n    " << address
              << "\n\nCtrl-C ends the page.\n"
              << std::flush;
  BrowserFile browser;
  browser.open(address);
  wait_for(signal.token());
  return kExitGood;
}

int say_no_index(const OpenStores& open, Console& console) {
  if (!open.closed().empty()) {
    say_closed(open, console);
    return kExitUnavailable;
  }
  return fail(console,
              "no sink of the configuration has an index that could be served; "
              "docs/serve.md says how to add one",
              kExitConfig);
}

void wait_for(const std::stop_token& stop) {
  const StopSignal ended(stop);
  pollfd fd{ended.fd(), POLLIN, 0};
  while (!stop.stop_requested()) ::poll(&fd, 1, -1);
}

}  // namespace scriptorium::cli

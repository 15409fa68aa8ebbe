#include "core/base/fault_point.h"

#ifdef SCRIPTORIUM_FAULTS

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>

namespace scriptorium::fault {
namespace {

struct Armed {
  std::string name;
  long nth = 0;  // 0: every time
  bool from_then_on = false;
  enum class Action { kKill, kError, kDelay } action = Action::kKill;
  int value = 0;
  std::atomic<long> reached{0};
};

int errno_of(std::string_view name) {
  struct Named {
    const char* name;
    int value;
  };
  static constexpr Named kNames[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EIO", EIO},
                                     {"EROFS", EROFS},   {"ESTALE", ESTALE}, {"EMFILE", EMFILE},
                                     {"EACCES", EACCES}, {"EFBIG", EFBIG},   {"ENOMEM", ENOMEM},
                                     {"EINTR", EINTR}};
  for (const Named& n : kNames) {
    if (name == n.name) return n.value;
  }
  return EIO;
}

std::deque<Armed>& armed() {
  static std::deque<Armed>* const list = [] {
    auto* result =
        new std::deque<Armed>;  // never destroyed: any thread may use it until the process ends
    const char* text = std::getenv("SCRIPTORIUM_FAULT");
    std::string_view rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      std::string_view item = rest.substr(0, comma);
      rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
      Armed& a = result->emplace_back();
      const auto first = item.find(':');
      a.name = std::string(item.substr(0, first));
      while (first != std::string_view::npos && !item.empty()) {
        const auto colon = item.find(':');
        if (colon == std::string_view::npos) break;
        item = item.substr(colon + 1);
        const std::string part(item.substr(0, item.find(':')));
        if (part == "kill") {
          a.action = Armed::Action::kKill;
        } else if (part.starts_with("error=")) {
          a.action = Armed::Action::kError;
          a.value = errno_of(std::string_view(part).substr(6));
        } else if (part.starts_with("delay=")) {
          a.action = Armed::Action::kDelay;
          a.value = static_cast<int>(std::strtol(part.c_str() + 6, nullptr, 10));
        } else {
          a.nth = std::strtol(part.c_str(), nullptr, 10);
          a.from_then_on = part.ends_with('+');
        }
      }
    }
    return result;
  }();
  return *list;
}

void log_reached(const std::string& name) {
  const char* file = std::getenv("SCRIPTORIUM_FAULT_LOG");
  if (file == nullptr) return;
  const int fd = ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const std::string line = name + "\n";
  [[maybe_unused]] const ssize_t n = ::write(fd, line.data(), line.size());
  ::close(fd);
}

}  // namespace

int reach(const char* name) noexcept {
  for (Armed& a : armed()) {
    if (a.name != name) continue;
    const long count = ++a.reached;
    if (a.nth != 0 && count != a.nth && !(a.from_then_on && count > a.nth)) continue;
    log_reached(a.name);
    switch (a.action) {
      case Armed::Action::kKill:
        ::kill(::getpid(), SIGKILL);
        ::pause();
        break;
      case Armed::Action::kError: return a.value;
      case Armed::Action::kDelay: ::poll(nullptr, 0, a.value); break;
    }
  }
  return 0;
}

}  // namespace scriptorium::fault

#endif

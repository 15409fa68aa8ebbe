#include "core/daemon/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace scriptorium {

Result<UniqueFd> lock_state_dir(const std::string& state_dir) {
  if (auto made = make_directories(state_dir, 0750); !made)
    return Error{ErrorKind::kTransient, "state_dir: " + made.error().message()};
  const std::string file = state_dir + "/lock";
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd)
    return Error{ErrorKind::kTransient, system_error("state_dir: open " + file, errno).message()};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      return Error{ErrorKind::kTransient, system_error("state_dir: lock " + file, errno).message()};
    std::string owner = "?";
    if (auto text = read_fd(fd.get(), 32); text && !text->empty())
      owner = text->substr(0, text->find('\n'));
    return Error{
        ErrorKind::kExhausted,
        state_dir + ": process " + owner +
            " works on it already; stop that one first, or give this one a state_dir of its own"};
  }
  if (::ftruncate(fd.get(), 0) != 0) return system_error("state_dir: " + file, errno);
  if (auto written = write_fd(fd.get(), std::to_string(::getpid()) + "\n"); !written)
    return written.error().with_context("state_dir: " + file);
  return fd;
}

}  // namespace scriptorium

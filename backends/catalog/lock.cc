#include "backends/catalog/lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <thread>

#include "backends/catalog/schema.h"

namespace scriptorium::catalog {
namespace {

constexpr std::chrono::milliseconds kLockStep{5};

}  // namespace

Result<WriterLock> WriterLock::take(const std::string& root, std::chrono::milliseconds patience) {
  const std::string file = lock_file(root);
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!fd) return system_error("open " + file, errno);
  // flock() has no timeout, and a signal to end it would need a handler of its own.
  const SteadyTime end = std::chrono::steady_clock::now() + patience;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error("lock " + file, errno);
    if (std::chrono::steady_clock::now() >= end) {
      return Error{ErrorKind::kTransient,
                   "another process changes the catalog and keeps its lock (writer.lock)"};
    }
    std::this_thread::sleep_for(kLockStep);
  }
  return WriterLock(std::move(fd));
}

}  // namespace scriptorium::catalog

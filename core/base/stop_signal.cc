#include "core/base/stop_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace scriptorium {

StopSignal::StopSignal(const std::stop_token& stop)
    : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), callback_(stop, Raise{fd_.get()}) {}

void StopSignal::Raise::operator()() const noexcept {
  const std::uint64_t one = 1;
  // Fails only if the counter is full, in which case the descriptor is readable anyway.
  static_cast<void>(!::write(fd, &one, sizeof one));
}

}  // namespace scriptorium

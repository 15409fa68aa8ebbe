#pragma once

#include <stop_token>

#include "core/base/file.h"

namespace scriptorium {

// A descriptor that becomes readable when a stop is requested and remains readable, for a thread
// that waits in poll(). Threads: any may request the stop. The token's source may be destroyed
// first.
class StopSignal {
 public:
  explicit StopSignal(const std::stop_token& stop);
  // -1 if no descriptor was left; poll() ignores that.
  int fd() const noexcept { return fd_.get(); }

 private:
  struct Raise {
    int fd;
    void operator()() const noexcept;
  };
  UniqueFd fd_;
  std::stop_callback<Raise> callback_;
};

}  // namespace scriptorium

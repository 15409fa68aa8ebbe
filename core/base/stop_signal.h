#pragma once

#include <stop_token>

#include "core/base/file.h"

namespace scriptorium {

// A descriptor that becomes readable when a stop is requested, and stays so: for a thread that
// waits in poll(). Threads: the stop may come from any. The token's source may go before this.
class StopSignal {
 public:
  explicit StopSignal(const std::stop_token& stop);
  // -1 if there was no descriptor left, which poll() passes over.
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

#pragma once

#include <stop_token>
#include <thread>

#include "core/base/file.h"

namespace scriptorium::cli {

// Turns SIGINT, SIGTERM and SIGHUP into a stop request during its lifetime, if `active`. Create it
// before any other thread.
class SignalStop {
 public:
  explicit SignalStop(bool active);
  std::stop_token token() const noexcept { return source_.get_token(); }

 private:
  void run(const std::stop_token& end) noexcept;

  std::stop_source source_;
  UniqueFd signals_;
  std::jthread thread_;
};

}  // namespace scriptorium::cli

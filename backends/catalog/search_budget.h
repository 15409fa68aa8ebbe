#pragma once

#include <stop_token>
#include <utility>

#include "core/base/time.h"

namespace scriptorium::catalog {

// When a search must end. Once it is over, it stays so. Threads: one at a time.
class Budget {
 public:
  Budget(const Clock& clock, SteadyTime deadline, std::stop_token stop)
      : clock_(clock), deadline_(deadline), stop_(std::move(stop)) {}

  bool is_over() {
    over_ = over_ || stop_.stop_requested() || clock_.steady() >= deadline_;
    return over_;
  }
  bool was_over() const noexcept { return over_; }
  const Clock& clock() const noexcept { return clock_; }

 private:
  const Clock& clock_;
  SteadyTime deadline_;
  std::stop_token stop_;
  bool over_ = false;
};

}  // namespace scriptorium::catalog

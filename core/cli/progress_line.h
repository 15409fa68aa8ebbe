#pragma once

#include <string_view>

#include "core/base/time.h"
#include "core/cli/console.h"

namespace scriptorium::cli {

// One line on a terminal that says how far slow work is, while it takes longer than a second.
// Borrows the console.
// Threads: one at a time.
class ProgressLine {
 public:
  explicit ProgressLine(Console& console);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  // Whether the line may be drawn now; true five times a second at most, and only on a terminal.
  bool due();
  void draw(std::string_view text);
  // Removes the line before other output.
  void clear();

 private:
  Console& console_;
  SteadyTime next_;
  bool drawn_ = false;
};

}  // namespace scriptorium::cli

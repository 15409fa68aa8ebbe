#include "core/cli/progress_line.h"

#include <chrono>

namespace scriptorium::cli {

ProgressLine::ProgressLine(Console& console)
    : console_(console), next_(std::chrono::steady_clock::now() + std::chrono::seconds{1}) {}

bool ProgressLine::due() {
  const auto now = std::chrono::steady_clock::now();
  if (!console_.out_is_terminal || now < next_) return false;
  next_ = now + std::chrono::milliseconds{200};
  return true;
}

void ProgressLine::draw(std::string_view text) {
  drawn_ = true;
  console_.err << "\r\033[K" << text << std::flush;
}

void ProgressLine::clear() {
  if (drawn_) console_.err << "\r\033[K" << std::flush;
  drawn_ = false;
}

}  // namespace scriptorium::cli

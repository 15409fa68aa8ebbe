#pragma once

#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>

namespace scriptorium::test {

// The process's time zone, as TZ has it, until the end of its life. Threads: before others exist.
class Zone {
 public:
  explicit Zone(const char* name) {
    if (const char* before = std::getenv("TZ")) before_ = before;
    set(name);
  }
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;
  ~Zone() { set(before_ ? before_->c_str() : nullptr); }

 private:
  static void set(const char* name) {
    if (name == nullptr) {
      ::unsetenv("TZ");
    } else {
      ::setenv("TZ", name, 1);
    }
    ::tzset();
  }

  std::optional<std::string> before_;
};

// As Europe/Berlin, also on a machine without zone files.
inline constexpr const char* kBerlin = "CET-1CEST,M3.5.0,M10.5.0/3";

}  // namespace scriptorium::test

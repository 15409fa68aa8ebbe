#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace scriptorium {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// One fact that accompanies a message's constant sentence. Never a job script, a variable's value
// or a credential.
struct LogField {
  std::string key;
  std::string value;

  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  LogField(std::string_view k, Number v) : key(k), value(std::to_string(v)) {}
};

// Receives messages. error = a person must act; warning = degraded, will recover by itself; info =
// start, stop, reload; debug = per event. Each error and warning has a stable id, explained in
// docs/messages.md. Repeats of an id are rate limited and counted. Threads: any. Blocks only on
// standard error.
class Logger {
 public:
  using Fields = std::vector<LogField>;
  virtual ~Logger() = default;
  virtual void log(LogLevel level, std::string_view id, std::string_view sentence,
                   const Fields& fields) noexcept = 0;

  void error(std::string_view id, std::string_view sentence, const Fields& fields = {}) noexcept {
    log(LogLevel::kError, id, sentence, fields);
  }
  void warning(std::string_view id, std::string_view sentence, const Fields& fields = {}) noexcept {
    log(LogLevel::kWarning, id, sentence, fields);
  }
  void info(std::string_view id, std::string_view sentence, const Fields& fields = {}) noexcept {
    log(LogLevel::kInfo, id, sentence, fields);
  }
  void debug(std::string_view id, std::string_view sentence, const Fields& fields = {}) noexcept {
    log(LogLevel::kDebug, id, sentence, fields);
  }
};

}  // namespace scriptorium

#include "core/daemon/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "core/base/file.h"
#include "core/base/guarded.h"
#include "core/base/text.h"
#include "core/base/time.h"
#include "core/daemon/system_journal.h"

namespace scriptorium {
namespace {

constexpr int kRepeatsPerMinute = 10;
// Of what write_log_line() sends to the system's journal; docs/serve.md names it.
constexpr const char* kRecordMessageId = "aabdb1493c5d4d0e9f31ba166e56b126";

struct Level {
  spdlog::level::level_enum spdlog;
  const char* priority;  // of a line that goes to systemd's journal, see sd-daemon(3)
};

Level convert(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return {spdlog::level::debug, "<7>"};
    case LogLevel::kInfo: return {spdlog::level::info, "<6>"};
    case LogLevel::kWarning: return {spdlog::level::warn, "<4>"};
    case LogLevel::kError: break;
  }
  return {spdlog::level::err, "<3>"};
}

// Under systemd the journal has the time, and takes the level from a prefix.
const char* pattern_of(bool under_systemd) {
  return under_systemd ? "%v" : "%Y-%m-%dT%H:%M:%S.%e%z %l %v";
}
bool is_under_systemd() {
  return system_journal::has_stream(STDERR_FILENO, std::getenv("JOURNAL_STREAM"));
}

std::string printable_value(const LogField& field) { return printable(field.value, 1000); }

std::string sentence_with(std::string_view sentence, const Logger::Fields& fields) {
  std::string line(sentence);
  for (const LogField& field : fields) {
    line.append(" ").append(field.key).append("=");
    const std::string value = printable_value(field);
    const bool needs_quotes = value.empty() || value.find_first_of(" \"=") != std::string::npos;
    if (needs_quotes) line += '"';
    for (const char c : value) {
      if (c == '"') line += '\\';
      line += c;
    }
    if (needs_quotes) line += '"';
  }
  return line;
}

class StderrLogger final : public Logger {
 public:
  explicit StderrLogger(LogLevel least)
      : under_systemd_(is_under_systemd()),
        logger_("scriptorium", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(convert(least).spdlog);
    logger_.set_pattern(pattern_of(under_systemd_));
    logger_.flush_on(spdlog::level::trace);
  }

  void log(LogLevel level, std::string_view id, std::string_view sentence,
           const Fields& fields) noexcept override try {
    const Level as = convert(level);
    if (!logger_.should_log(as.spdlog)) return;
    std::uint64_t held_back = 0;
    if (as.spdlog >= spdlog::level::warn && !allowed(id, fields, held_back)) return;
    std::string line = under_systemd_ ? as.priority : "";
    line.append(id).append(": ").append(sentence_with(sentence, fields));
    if (held_back > 0)
      line += " (" + std::to_string(held_back) + " like this were held back before)";
    logger_.log(as.spdlog, "{}", line);
  } catch (...) {  // NOLINT(bugprone-empty-catch): logging must never stop the work that it reports
  }

 private:
  struct Repeats {
    SteadyTime since;
    int written = 0;
    std::uint64_t held_back = 0;
  };

  bool allowed(std::string_view id, const Fields& fields, std::uint64_t& held_back) {
    std::string key(id);
    // For each instance, so that a noisy sink does not hide the messages of another.
    const auto instance = std::find_if(fields.begin(), fields.end(), [](const LogField& f) {
      return f.key == "sink" || f.key == "source";
    });
    if (instance != fields.end()) key.append("/").append(instance->value);
    return repeats_.with([&](std::map<std::string, Repeats>& all) {
      Repeats& r = all[key];
      const SteadyTime now = system_clock().steady();
      if (r.written == 0 || now - r.since >= std::chrono::minutes{1}) {
        held_back = r.held_back;
        r = {.since = now, .written = 0, .held_back = 0};
      }
      if (r.written >= kRepeatsPerMinute) {
        ++r.held_back;
        return false;
      }
      ++r.written;
      return true;
    });
  }

  const bool under_systemd_;
  spdlog::logger logger_;
  Guarded<std::map<std::string, Repeats>> repeats_;
};

class CommandLogger final : public Logger {
 public:
  CommandLogger() : logger_("command", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_pattern("scriptorium: %l: %v");
    logger_.set_level(spdlog::level::warn);
  }
  void log(LogLevel level, std::string_view /*id*/, std::string_view sentence,
           const Fields& fields) noexcept override try {
    logger_.log(convert(level).spdlog, "{}", sentence_with(sentence, fields));
  } catch (...) {  // NOLINT(bugprone-empty-catch): see StderrLogger
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Logger> make_stderr_logger(LogLevel least) {
  return std::make_unique<StderrLogger>(least);
}
std::unique_ptr<Logger> make_command_logger() { return std::make_unique<CommandLogger>(); }

Result<void> write_log_line(std::string_view id, std::string_view sentence,
                            const Logger::Fields& fields) {
  const std::string line = std::string(id) + ": " + sentence_with(sentence, fields);
  if (is_under_systemd()) {
    Logger::Fields values;
    for (const LogField& field : fields) values.emplace_back(field.key, printable_value(field));
    return system_journal::send(line, kRecordMessageId, values);
  }
  spdlog::pattern_formatter formatter(pattern_of(false));
  spdlog::memory_buf_t bytes;
  formatter.format(spdlog::details::log_msg("", convert(LogLevel::kInfo).spdlog, line), bytes);
  return write_fd(STDERR_FILENO, {bytes.data(), bytes.size()});
}

LogLevel parse_log_level(const std::string& text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

}  // namespace scriptorium

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace scriptorium::checkpoint {

// What saves the command: criu, by scriptorium-checkpointd, or the command itself.
enum class RunEngine : std::uint8_t { kCriu, kApp };

inline constexpr int kExitUsage = 64;  // sysexits.h
// Of a job whose command was saved: Slurm (RequeueExit) and OAR run it again.
inline constexpr int kExitRunAgain = 99;

// The command line of scriptorium-run.
struct RunOptions {
  RunEngine engine = RunEngine::kCriu;
  std::string save_dir;            // "" = default_save_dir()
  std::int64_t every_seconds = 0;  // 0 = only when the scheduler signals
  int keep = 0;                    // images, the newest included; 0 = the service's limit
  bool keeps_images = false;
  bool shows_help = false;
  bool shows_version = false;
  std::vector<std::string> command;
};
// Pure: the words after the program's name. kPermanent says what is wrong.
Result<RunOptions> parse_run_options(const std::vector<std::string>& words);

// Pure: "90s", "30m", "2h" or "1d" in seconds, at most a year; 0 = it is none of these.
std::int64_t parse_period(std::string_view text);

extern const char* const kRunHelp;

}  // namespace scriptorium::checkpoint

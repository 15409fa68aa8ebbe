#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace scriptorium::checkpoint {

// What is done with a job that makes no checkpoint. kRequeue loses its work.
enum class NoCheckpoint : std::uint8_t { kLeave, kWait, kRequeue };

// The command line of scriptorium-migrate.
struct MigrateOptions {
  std::vector<std::string> jobs;  // ids, such as "4711" or "4711_3"
  std::string drain_node;         // "" = the jobs are named
  std::string nodes;              // the only ones that a job may go to; "" = any
  std::string excluded_nodes;
  std::string partition;              // "" = the job's own
  std::string priority;               // while the job waits; "" = unchanged
  std::string reason;                 // of the drain
  std::chrono::seconds timeout{600};  // of a job's save, of its wait in the queue, of its resume
  int moves_at_a_time = 4;
  NoCheckpoint no_checkpoint = NoCheckpoint::kLeave;
  bool requeues_parallel_jobs = false;
  bool holds = false;
  bool only_tests = false;
  bool undoes = false;
  bool checks_config = false;
  bool is_json = false;
  bool is_verbose = false;
  bool is_quiet = false;
  bool shows_help = false;
  bool shows_version = false;
};

// Pure: the words after the program's name. kPermanent says what is wrong.
Result<MigrateOptions> parse_migrate_options(const std::vector<std::string>& words);

extern const char* const kMigrateHelp;

}  // namespace scriptorium::checkpoint

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "schedulers/usage/job_facts.h"

// What Slurm's commands print, as values. Pure. Fields that users write (names, directories) may
// hold any byte, so rows are taken apart by a guard of random digits that nobody could know, and
// one odd row refuses the whole answer.
namespace scriptorium::usage {

// Rows of `fields` fields, each field and so each row ended by `guard`, rows by a newline after it.
// kTransient, with the name of the command, if anything is left over.
Result<std::vector<std::vector<std::string_view>>> split_rows(std::string_view answer,
                                                              std::string_view guard,
                                                              std::size_t fields,
                                                              const std::string& command);

// "5:00", "1-02:00:00", "00:02.992"; nothing for words such as UNLIMITED.
std::optional<double> read_duration(std::string_view text) noexcept;
// "200M", "1.50G", "76853248"; nothing for anything else.
std::optional<std::uint64_t> read_size(std::string_view text) noexcept;
// A member of "cpu=2,mem=200M,node=1,gres/gpu=2".
std::optional<std::string_view> tres(std::string_view list, std::string_view name) noexcept;
// A number of things; nothing for Slurm's "not set" and "infinite" of 32 bits (NO_VAL, INFINITE in
// slurm/slurm.h).
std::optional<std::uint32_t> read_count(std::string_view text) noexcept;
// The names in "n[01-03,7],login1"; none if it is not as Slurm writes it.
std::vector<std::string> read_hosts(std::string_view list);
// Text that Slurm leaves empty or prints as "(null)" is absent.
std::optional<std::string> read_text(std::string_view text);

Request read_request(std::string_view allocated_tres, std::string_view nodes, std::string_view cpus,
                     std::string_view time_limit);

// A job that will not change any more; `state` is Slurm's long word.
bool is_final_state(std::string_view state) noexcept;

// Names of numbers from the system's databases.
void add_names(User& user);

// ---- squeue

struct QueuedJob {
  std::string id;  // the number of this job, also of an array's task
  bool is_final = false;
  bool running = false;    // or suspended, or completing: its times are of the present life
  std::string batch_host;  // where the script runs; "" = unknown
  JobFacts facts;          // without names of user and group
};

// SQUEUE_FORMAT2 of the question. It goes in by the environment, where another user cannot read the
// guard.
std::string queue_format(std::string_view guard);
Result<std::vector<QueuedJob>> parse_queue(std::string_view answer, std::string_view guard);

}  // namespace scriptorium::usage

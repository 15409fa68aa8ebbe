#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

// How Slurm's commands are called, and what they say on standard error.
//
// Threads: any.
namespace scriptorium::slurm_client {

// The path of squeue, sacct or another one: `configured` if it is not empty, otherwise the first of
// this name in the usual folders. kInvalidConfig, with the remedy, if there is none; the option
// that names it is called like the command.
Result<std::string> find_command(const std::string& configured, const std::string& name);

// The slurm.conf to use: `configured` if it is not empty, otherwise that of SLURM_CONF in our own
// environment; "" = where the commands look by themselves.
std::string choose_slurm_conf(const std::string& configured);

// The environment of such a command, with `more`: nothing of ours, as SLURM_*, SQUEUE_* and SACCT_*
// change what it prints, except which Slurm is meant. Times are in UTC, so that no hour of the year
// comes twice.
std::vector<std::string> environment(const std::string& slurm_conf,
                                     std::vector<std::string> more = {});
// That of squeue for an answer in `format`, see squeue_format(), with times as seconds since 1970.
// Unlike a command line, another user cannot read it.
std::vector<std::string> squeue_environment(const std::string& slurm_conf,
                                            const std::string& format);

// The end of each text in an answer: 128 random bits, new for each question, so that no text that a
// user writes holds it. Does not begin with a digit.
Result<std::string> new_guard();

// True if squeue ended because the one job that it was asked for does not exist (any more). Of
// several jobs, squeue leaves out those that it does not know.
bool says_unknown_job(std::string_view standard_error) noexcept;
// True if sacct or sacctmgr ended because this Slurm keeps no account of its jobs.
bool says_no_accounting(std::string_view standard_error) noexcept;

}  // namespace scriptorium::slurm_client

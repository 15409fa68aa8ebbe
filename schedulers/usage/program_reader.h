#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/api/executables.h"
#include "core/base/time.h"
#include "schedulers/usage/files.h"
#include "schedulers/usage/life.h"

namespace scriptorium::usage {

// Whether the programs of a job are to be read: at each of its early readings, and then whenever an
// eighth of its time so far has passed, but at least every 120 s and never twice in half a second.
// So little of a short job is unseen, and a long one costs as little as it can.
bool programs_due(const LifeState& life, SteadyTime now) noexcept;

// Reads them, if they are due, of the job's processes into life.programs: the times of each
// process, and once for each program that it executes its command line and control group. Needs no
// right. Changes nothing if the files of /proc could not be read for want of memory or descriptors.
// `executables`: null, or finds the files of programs, which are asked for at each call.
void read_programs(Files& files, const std::string& proc, const std::vector<std::uint32_t>& pids,
                   SteadyTime now, Executables* executables, LifeState& life);

// Takes the answers that have arrived.
void learn_executables(Executables* executables, LifeState& life);

}  // namespace scriptorium::usage

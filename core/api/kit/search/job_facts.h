#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/api/query.h"
#include "core/base/time.h"

namespace scriptorium {

// The row of a job.script event, with the modules of its script and of LOADEDMODULES if the event
// has the bytes of its environment. `family` stays empty.
JobRow row_of(const Event& submission);

// Adds what a later event says: usage.job (state, exit, times, use, findings; the newest `ended_at`
// wins), and job.life in the same members. A kind or member that is not known changes nothing. A
// row that has no submission yet (event_id "") also takes name, owner and account from it. Of any
// row, the account becomes that of the run, see take_account().
// `lives` counts the lives that were joined. Events with equal starts or equal ends describe one
// life; of an older life than the newest, each must be joined once. A task of an array is counted
// in `runs` instead.
//
// Returns the run that a usage.job describes, without its modules; nothing if it has no end.
std::optional<JobRun> join(JobRow& row, const Event& later);

// Gives a row the account of one of its runs, if the run names one and its owner is verified: of
// the run that ended last, in whichever order they come. Of an array, whose tasks have one row, all
// runs must name the same one; otherwise the row has none.
void take_account(JobRow& row, const JobRun& run, bool is_task);

// Whether the scheduler says that the job ended badly, and not because somebody wanted it to end.
bool is_failure(const std::optional<std::string>& state) noexcept;

// Schedulers give starts in whole seconds, and nodes have clocks of their own: so much may the time
// of a life lie before the one at which the job's script was written.
inline constexpr std::int64_t kClockSlack = 60 * kSecond;
// Whether a life with this time can be of the job that was submitted then. One that begins more
// than 180 days later is of another job with its id.
bool can_be_life_of(Timestamp submission, Timestamp life) noexcept;

// The id of the job that an event is about. What a task of an array used is about the array, which
// has one script for all of its tasks.
const std::string& owning_job_id(const Event& event) noexcept;

// Kind and name of an item of JobRow::software.
std::pair<std::string_view, std::string_view> software_parts(std::string_view item) noexcept;

// Environment variables "NAME=value" of a file "environment"; empty if it is not NUL-ended.
std::string_view environment_value(std::string_view environment, std::string_view name);

}  // namespace scriptorium

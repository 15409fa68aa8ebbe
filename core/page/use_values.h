#pragma once

#include "core/api/query.h"
#include "core/page/templates.h"

// What a job asked for beside what it used, in figures and as bars. An array has none: its row has
// the figures of one task. Pure.
namespace scriptorium::page {

// A row for each of CPUs, memory, time, GPUs of which something is known: what, asked, used, share.
kainjow::mustache::list use_rows(const JobRow& job);
// The cells of a list of jobs: time, CPU, memory, and `with_gpus` GPUs; text and share.
kainjow::mustache::list use_cells(const JobRow& job, bool with_gpus);

}  // namespace scriptorium::page

#pragma once

#include <kainjow/mustache.hpp>

#include "core/api/searchable.h"

namespace scriptorium::page {

// Plots of CPU, memory and GPU over time from the job's usage.sample events, as values of
// job.mustache: caption, html (the picture), top, middle and bottom (of the axis), begin and end,
// and keys (class and name of each line). Of the newest life only; empty without such events, and
// for arrays, whose tasks have them elsewhere. The events are unchecked. Pure.
kainjow::mustache::list job_plots(const Searchable::Record& record);

}  // namespace scriptorium::page

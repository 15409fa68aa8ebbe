#pragma once

#include <memory>

#include "core/api/event.h"
#include "core/config/config.h"

// The option `parts` of a sink: which files of an event it gets. Pure functions; any thread.
namespace scriptorium::delivery {

// Whether every event reaches the sink with all its files. Only such a sink can be an archive:
// what is read back from another one lacks files, under the id of the whole event.
bool gets_whole_events(const SinkConfig& sink);

// The event as the sink gets it: itself, or if it has a file of another part, a copy without those
// files whose `parts` say so. The bytes are shared, and all metadata stay. A null event stays null.
std::shared_ptr<const Event> select_parts(std::shared_ptr<const Event> event,
                                          const SinkConfig& sink);

}  // namespace scriptorium::delivery

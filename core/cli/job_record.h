#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/searchable.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/cli/job_ids.h"
#include "core/cli/open_stores.h"
#include "core/query/job_record.h"

// Jobs with their texts, from the fastest store that has them.
namespace scriptorium::cli {

// The newest job of that name. Nothing: a message was printed and `code` set. Several jobs of one
// name are mentioned. A job that is missing in a range is not.
std::optional<Searchable::Record> find_record(const OpenStores& stores, const JobName& name,
                                              Console& console, int& code);

using query::earlier_run;
using query::EarlierRun;
using query::environment_bytes;
using query::family_of;
using query::record_of;
using query::script_text;

}  // namespace scriptorium::cli

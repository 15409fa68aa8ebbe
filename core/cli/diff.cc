#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/compare.h"
#include "core/cli/exit_codes.h"
#include "core/cli/job_record.h"
#include "core/cli/job_text.h"
#include "core/cli/pager.h"

namespace scriptorium::cli {
namespace {

ComparedParts parts_of(const Arguments& arguments) {
  if (arguments.script) return {.script = true, .environment = false, .facts = false};
  if (arguments.environment) return {.script = false, .environment = true, .facts = false};
  return {};
}

struct Earlier {
  Searchable::Record record;
  bool completed = false;
};

// The last run of the job's family that worked; prints why there is none.
std::optional<Earlier> run_to_compare(const OpenStores& stores, const JobRow& job, Console& console,
                                      int& code) {
  if (!job.family) {
    code = fail(console,
                "no store knows a family of job " + printable(job.id) +
                    ", so there is no earlier run to compare it with; name two jobs",
                kExitNoInput);
    return std::nullopt;
  }
  std::vector<query::Refusal> refused;
  const auto found = earlier_run(stores.list(), job, refused);
  say_refusals(refused, console);
  if (!found) {
    code =
        fail(console,
             "no earlier run of job " + printable(job.id) +
                 "'s family is known to have completed with exit code 0; \"scriptorium history " +
                 printable(job.id) + "\" shows its runs",
             kExitNoInput);
    return std::nullopt;
  }
  auto record = record_of(stores.list(), found->job);
  if (!record) {
    code =
        fail(console, "job " + printable(found->job.id) + " is not stored any more", kExitNoInput);
    return std::nullopt;
  }
  return Earlier{.record = *std::move(record), .completed = found->completed};
}

std::string compared_with(const JobRow& before, bool completed) {
  return "compared with job " + printable(before.id) + " of " + local_time(before.time) +
         (completed ? ", the last of its family that completed\n"
                    : ", the last of its family; how its jobs ended is not known (no usage "
                      "events)\n");
}

// Leaves what every login changes out of a comparison; returns how many variables.
std::size_t leave_out_session(Comparison& comparison) {
  return std::erase_if(comparison.environment, [](const query::VariableChange& change) {
    return query::is_session_variable(change.name);
  });
}

bool parts_differ(const Comparison& comparison, const ComparedParts& parts) {
  return (parts.script && comparison.script_differs()) ||
         (parts.environment && !comparison.environment.empty()) ||
         (parts.facts &&
          (comparison.modules.any() || comparison.directives.any() || !comparison.request.empty()));
}

}  // namespace

int diff_command(const Arguments& arguments, Console& console) {
  const auto names = job_names(arguments.jobs, arguments.cluster);
  if (!names) return fail(console, names.error().message(), kExitUsage);
  if (names->empty() || names->size() > 2)
    return fail(console, "diff takes one job or two different ones", kExitUsage);
  int code = kExitGood;
  const auto stores = open_stores_or_say(arguments, console, code);
  if (!stores) return code;
  auto before = find_record(*stores, names->front(), console, code);
  if (!before) return code;
  std::optional<Searchable::Record> after;
  const bool alone = names->size() == 1;
  bool completed = false;
  if (alone) {
    after = std::exchange(before, std::nullopt);
    if (auto earlier = run_to_compare(*stores, after->job, console, code)) {
      before = std::move(earlier->record);
      completed = earlier->completed;
    }
  } else {
    after = find_record(*stores, names->back(), console, code);
  }
  if (!before || !after) return code;

  const ComparedParts parts = parts_of(arguments);
  Comparison comparison = compare(*before, *after);
  const std::size_t left_out = arguments.all ? 0 : leave_out_session(comparison);
  code = parts_differ(comparison, parts) ? kExitFound : kExitGood;
  if (arguments.json) {
    console.out << printable_json(
                       comparison_json(comparison, before->job, after->job, parts)
                           .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace))
                << "\n";
    return code;
  }
  Pager pager(console);
  if (alone) pager.write(compared_with(before->job, completed));
  pager.write(comparison_text(comparison, before->job, after->job, parts, console));
  if (left_out > 0 && parts.environment)
    pager.write("\n" + count_of(left_out, "variable") +
                " that every login changes left out; --all shows all\n");
  return code;
}

}  // namespace scriptorium::cli

#pragma once

#include <cstdint>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/free_source.h"
#include "core/api/plugin_context.h"
#include "schedulers/usage/job_config.h"
#include "schedulers/usage/job_facts.h"
#include "schedulers/usage/whole_nodes.h"

// Finished jobs from Slurm's accounting, by sacct. Its figures are rougher than those of a node
// that was sampled: memory is the largest of readings that are 30 s apart unless the site says
// otherwise, summed over a step's tasks, and means another thing in each release of Slurm. It knows
// of steps, not of nodes one by one (schedulers/usage/steps.h).
namespace scriptorium::usage {

// ---- sacct's answer, pure

struct AccountedJob {
  JobView view;
  Timestamp ended_at;
  std::string node_list;  // "n[1-3]"
};

// Arguments of sacct for jobs that ended within a time; `guard` separates fields.
std::vector<std::string> sacct_arguments(std::string_view guard, Timestamp from, Timestamp to);

// Jobs whose end is known, each life of a requeued job for itself; one that never ran is left out.
// kTransient if one row is not as Slurm writes it.
Result<std::vector<AccountedJob>> parse_sacct(std::string_view answer, std::string_view guard);

// Removes the energy of the jobs that did not have their nodes alone, or that is not credible.
void keep_own_energy(std::vector<AccountedJob>& jobs, const NodeSizes& sizes);

// ---- how far the import is

// Kept as the source's position in the journal, in the transaction that takes the events: what a
// crash interrupts is neither lost nor written twice. Jobs that ended before `until` are done, but
// those of the overlap are asked for again, as the accounting learns of some jobs late; `seen` are
// the ids of those that were written already.
struct AccountingCursor {
  Timestamp until;
  std::set<std::string> seen;

  std::string text() const;
};
std::optional<AccountingCursor> parse_cursor(std::string_view text);

// Asks sacct until `stop`, or with `once` until it has caught up. Catches up in windows of six
// hours. An error is one of sacct's or of the journal's; the caller calls again.
Result<void> run_accounting(const JobConfig& config, const PluginContext& context,
                            EventWriter& writer, const std::stop_token& stop, bool once);

}  // namespace scriptorium::usage

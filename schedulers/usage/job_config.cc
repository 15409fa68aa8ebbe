#include "schedulers/usage/job_config.h"

#include <chrono>
#include <utility>

#include "core/api/kit/path_option.h"
#include "core/base/command.h"
#include "schedulers/slurm_client/command.h"

namespace scriptorium::usage {
namespace {

using namespace std::literals;

const Schema<JobConfig>& schema() {
  static const Schema<JobConfig> the_schema{
      choice("resolve", &JobConfig::resolve,
             {{"slurmctld", Resolve::kSlurmctld}, {"none", Resolve::kNone}},
             "Whom to ask what a job requested and how it ended: slurmctld by squeue, or nobody."),
      option("slurm_conf", &JobConfig::slurm_conf,
             "The slurm.conf for squeue and sacct, an absolute path; absent: the one that "
             "SLURM_CONF names in the daemon's environment, otherwise the commands' default."),
      option("squeue", &JobConfig::squeue,
             "The squeue command, an absolute path; absent: the first one in the usual folders."),
      choice("accounting", &JobConfig::accounting,
             {{"none", Accounting::kNone}, {"sacct", Accounting::kSacct}},
             "Where finished jobs are imported from; enable it once per cluster, on a host that "
             "can ask slurmdbd."),
      choice("accounting_jobs", &JobConfig::accounting_jobs,
             {{"all", AccountingJobs::kAll}, {"multi_node", AccountingJobs::kMultiNode}},
             "Which jobs are imported: all, or only those with several nodes, because a one-node "
             "job's own node reports it."),
      option("sacct", &JobConfig::sacct,
             "The sacct command, an absolute path; absent: the first one in the usual folders."),
      integer("accounting_interval_seconds", &JobConfig::accounting_interval_seconds, 1, 86400,
              "Time between two queries to sacct."),
      integer("accounting_overlap_seconds", &JobConfig::accounting_overlap_seconds, 0, 604800,
              "How far each query reaches back before the end of the previous one, for jobs that "
              "reach the accounting late."),
      integer("accounting_first_hours", &JobConfig::accounting_first_hours, 0, 87600,
              "How far back the very first query reaches."),
      option("help_url", &JobConfig::help_url,
             "The site's own page about a finding, an http or https URL in which {finding} is "
             "replaced by the finding's id; \"\" = none."),
      custom<JobConfig>(
          {.name = "findings",
           .type = "table",
           .allowed = "thresholds by name, on = [...], off = [...]",
           .help = "Thresholds and switches of the findings, which docs/usage.md lists."},
          [](const Value& value, const Table& table, JobConfig& into, Problems& problems) {
            const Table* inner = std::get_if<Table>(&value.data);
            if (inner == nullptr) {
              return options_detail::wrong_type(value, table, {.name = "findings", .type = "table"},
                                                problems);
            }
            into.findings = read_finding_options(*inner, problems);
          }),
  };
  return the_schema;
}

Result<void> ask_once(const JobConfig& config, const std::string& program,
                      const std::vector<std::string>& arguments, const char* remedy) {
  CommandRunner runner(kMaxAnswer);
  const auto answer = runner.run({program, arguments, slurm_client::environment(config.slurm_conf)},
                                 {}, std::chrono::steady_clock::now() + 15s);
  if (!answer) return answer.error().with_context(remedy);
  if (answer->status == 0) return {};
  return Error{ErrorKind::kTransient,
               std::string(remedy) + ": " + answer->error.substr(0, answer->error.find('\n'))};
}

}  // namespace

std::vector<OptionInfo> describe_job() { return schema().options(); }

JobConfig read_job_config(const Table& table, Problems& problems) {
  JobConfig config = schema().parse(table, problems);
  for (const char* key : {"slurm_conf", "squeue", "sacct"})
    check_absolute_path(table, key, problems);
  config.findings.set_help_url(read_help_url(table, config.help_url, problems));
  if (config.accounting == Accounting::kNone && table.find("accounting") == nullptr) {
    for (const char* key : {"accounting_jobs", "sacct", "accounting_interval_seconds",
                            "accounting_overlap_seconds", "accounting_first_hours"}) {
      if (table.find(key) != nullptr)
        problems.add(table, key, "set, but nothing is imported",
                     "accounting = \"sacct\" beside it");
    }
  }
  return config;
}

Result<void> check_jobs(const JobConfig& config) {
  if (config.resolve == Resolve::kSlurmctld) {
    const auto squeue = slurm_client::find_command(config.squeue, "squeue");
    if (!squeue) return squeue.error().with_context("resolve = \"slurmctld\"");
    if (auto asked =
            ask_once(config, *squeue, {"-h", "-o", "%A", "-t", "running"},
                     "slurmctld cannot be asked now, so usage.job would lack what jobs asked for");
        !asked) {
      return asked;
    }
  }
  if (config.accounting == Accounting::kSacct) {
    const auto sacct = slurm_client::find_command(config.sacct, "sacct");
    if (!sacct) return sacct.error().with_context("accounting = \"sacct\"");
    return ask_once(config, *sacct, {"-n", "-X", "-S", "now-1minutes", "-o", "JobIDRaw"},
                    "the accounting cannot be asked now, so no job is imported until it can");
  }
  return {};
}

}  // namespace scriptorium::usage

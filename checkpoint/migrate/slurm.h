#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/command.h"
#include "core/base/result.h"

// What scriptorium-migrate reads from Slurm and changes in it, by Slurm's own commands.
namespace scriptorium::checkpoint {

// A job as `squeue` shows it. Only fields that its owner cannot fill with text of his own are read:
// in `scontrol show job` a job's name can look like any other field.
struct SlurmJob {
  std::string id;          // of a task of an array: its own
  std::string display_id;  // "4711_3" for a task of an array
  uid_t uid = 0;
  std::string state;  // "RUNNING"
  std::string nodes;  // "" = none; "n[1-2]"
  bool is_batch = false;
  bool is_het = false;
  bool may_requeue = false;
  int restarts = 0;
  int node_count = 0;
  std::string required_nodes;  // of the request; "" = none
  std::string partition;
  std::string priority;
  std::int64_t run_seconds = 0;
  // Further words for sbatch that ask for the same.
  std::vector<std::string> request;

  bool is_running() const { return state == "RUNNING"; }
  bool is_pending() const { return state == "PENDING"; }
  // It does not run, and will not.
  bool has_ended() const;
};

struct SlurmNode {
  std::string state;   // "idle", "allocated+drain"
  std::string reason;  // "" = none
  bool is_drained() const { return state.find("drain") != std::string::npos; }
};

// The process of a job that `scancel --batch --signal` reaches, and what there is beside it.
struct BatchProcess {
  bool catches_signal = false;  // USR2
  bool blocks_signal = false;   // USR2
  std::string name;
  std::string tracer;         // name of the process that holds it by ptrace; "" = none
  bool saves_itself = false;  // scriptorium-run --engine=app
  // A program is in the job that no process of the job has started: one that was resumed.
  bool has_resumed_program = false;
};

// What a job's next life is to have. Empty: unchanged; "-" = none.
struct SlurmChanges {
  std::string excluded_nodes;
  std::string required_nodes;
  std::string partition;
  std::string priority;
  std::string start;  // "now", "now+2"
};

struct Placement {
  std::string nodes;
  std::string start;  // as Slurm writes it; "" = at once
};

// Pure parsers of what Slurm 22.05 prints.
extern const char* const kJobFields;  // of squeue -O
std::vector<SlurmJob> parse_jobs(std::string_view text);
std::optional<SlurmNode> parse_node(std::string_view text);  // of sinfo -O
std::string parse_excluded_nodes(std::string_view text);     // of scontrol show -o job
std::int64_t parse_slurm_time(std::string_view text);        // "1-02:03:04"; seconds
// `now` as Slurm writes times. kPermanent: why the request has no place.
Result<Placement> parse_placement(std::string_view error_output, std::string_view now);
// `text` is what kInspectScript printed.
std::optional<BatchProcess> parse_batch_process(std::string_view text, uid_t owner);
extern const char* const kInspectScript;  // for sh, with the job's id

// Threads: one. Each call may take as long as Slurm's patience.
// Fails:   kTransient: Slurm does not answer; kPermanent: it refuses, in its words.
class Slurm {
 public:
  virtual ~Slurm() = default;
  // Exit codes for which a batch job is requeued: "99" or "1-9,99".
  virtual Result<std::string> requeue_exit() = 0;
  // Those that Slurm still knows, with all tasks of an array.
  virtual Result<std::vector<SlurmJob>> jobs(const std::vector<std::string>& ids) = 0;
  virtual Result<std::vector<SlurmJob>> jobs_on(const std::string& node) = 0;
  virtual Result<SlurmNode> node(const std::string& name) = 0;
  virtual Result<std::string> excluded_nodes(const std::string& job) = 0;  // "" = none
  // As the job's owner, in a step of the job. Nothing: the process is not there.
  virtual Result<std::optional<BatchProcess>> inspect(const SlurmJob& job) = 0;
  virtual Result<Placement> place(const SlurmJob& job, const SlurmChanges& changes) = 0;
  virtual Result<void> signal(const std::string& job) = 0;
  virtual Result<void> requeue(const std::string& job) = 0;
  virtual Result<void> hold(const std::string& job) = 0;
  virtual Result<void> change(const std::string& job, const SlurmChanges& changes) = 0;
  virtual Result<void> drain(const std::string& node, const std::string& reason) = 0;
  virtual Result<void> resume(const std::string& node) = 0;
};

class SlurmCommands : public Slurm {
 public:
  // `environment`: NAME=value of this process. Variables that change what Slurm's commands do or
  // print are left out.
  SlurmCommands(std::string path, const std::vector<std::string>& environment, uid_t uid);

  // As `scontrol show` prints them; the second, a line for each.
  Result<std::string> config() { return output_of({"scontrol", "show", "config"}); }
  Result<std::string> partitions() { return output_of({"scontrol", "show", "-o", "partition"}); }

  Result<std::string> requeue_exit() override;
  Result<std::vector<SlurmJob>> jobs(const std::vector<std::string>& ids) override;
  Result<std::vector<SlurmJob>> jobs_on(const std::string& node) override;
  Result<SlurmNode> node(const std::string& name) override;
  Result<std::string> excluded_nodes(const std::string& job) override;
  Result<std::optional<BatchProcess>> inspect(const SlurmJob& job) override;
  Result<Placement> place(const SlurmJob& job, const SlurmChanges& changes) override;
  Result<void> signal(const std::string& job) override;
  Result<void> requeue(const std::string& job) override;
  Result<void> hold(const std::string& job) override;
  Result<void> change(const std::string& job, const SlurmChanges& changes) override;
  Result<void> drain(const std::string& node, const std::string& reason) override;
  Result<void> resume(const std::string& node) override;

 private:
  Result<CommandRunner::Answer> run(std::vector<std::string> words);
  Result<CommandRunner::Answer> run_as(uid_t owner, std::vector<std::string> words);
  Result<std::string> output_of(std::vector<std::string> words);
  Result<void> done(std::vector<std::string> words);

  CommandRunner runner_{std::size_t{16} << 20};
  std::string path_;
  std::vector<std::string> environment_;
  uid_t uid_;
};

}  // namespace scriptorium::checkpoint

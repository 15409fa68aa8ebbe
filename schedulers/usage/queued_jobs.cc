#include "schedulers/usage/queued_jobs.h"

#include <algorithm>
#include <array>
#include <span>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/time.h"
#include "schedulers/slurm_client/text.h"

namespace scriptorium::usage {
namespace {

using namespace slurm_client;

// In the order of parse_queue().
constexpr std::array<std::string_view, 22> kQueueFields{
    "JobID",     "ArrayJobID", "ArrayTaskID", "UserID",     "GroupID",    "SubmitTime",
    "StartTime", "EndTime",    "TimeUsed",    "TimeLimit",  "RestartCnt", "State",
    "exit_code", "NumNodes",   "NumCPUs",     "tres-alloc", "HetJobID",   "Account",
    "QOS",       "Partition",  "WorkDir",     "Name"};

bool is_number(std::string_view text) { return parse_number<std::uint64_t>(text).has_value(); }

// The wait status of a batch script as "status:signal".
std::optional<std::string> exit_text(std::string_view raw) {
  const auto code = parse_number<std::uint64_t>(raw);
  if (!code) return std::nullopt;
  return std::to_string((*code >> 8U) & 0xffU) + ":" + std::to_string(*code & 0x7fU);
}

// A site that accounts for types alone (AccountingStorageTRES=gres/gpu:a100) has no sum.
void read_gpus(std::string_view list, Request& into) {
  std::optional<std::uint32_t> typed;
  const std::optional<std::uint32_t> all = read_count(tres(list, "gres/gpu").value_or(""));
  while (!list.empty()) {
    const std::string_view item = take_until(list, ',');
    const std::string_view name = item.substr(0, item.find('='));
    const auto count = read_count(item.substr(std::min(name.size() + 1, item.size())));
    if (!count || *count == 0) continue;
    if (name.starts_with("gres/gpu:")) typed = typed.value_or(0) + *count;
    if (name.starts_with("gres/shard") || name.starts_with("gres/mps")) into.shared_gpu = true;
  }
  into.gpus = std::max(all, typed);  // nothing is less than any number
}

}  // namespace

Request read_request(std::string_view allocated, std::string_view nodes, std::string_view cpus,
                     std::string_view time_limit) {
  // A job that ran had some of each: 0 is "not counted".
  const auto some = [](const auto& count) { return count == 0U ? std::nullopt : count; };
  Request request;
  request.nodes = some(read_count(nodes));
  if (!request.nodes) request.nodes = some(read_count(tres(allocated, "node").value_or("")));
  request.cpus = some(read_count(tres(allocated, "cpu").value_or(cpus)));
  read_gpus(allocated, request);
  request.memory_bytes = some(read_size(tres(allocated, "mem").value_or("")));
  request.time_limit_seconds = read_duration(time_limit);
  return request;
}

namespace {

// A job that will not change any more; `state` is Slurm's long word.
bool is_final_state(std::string_view state) noexcept {
  static constexpr std::array kFinal{"COMPLETED",     "CANCELLED", "FAILED",    "TIMEOUT",
                                     "NODE_FAIL",     "PREEMPTED", "BOOT_FAIL", "DEADLINE",
                                     "OUT_OF_MEMORY", "REVOKED"};
  return std::any_of(kFinal.begin(), kFinal.end(),
                     [&](std::string_view word) { return word == state; });
}

void read_end(std::span<const std::string_view> row, JobFacts& facts) {
  facts.state = std::string(row[11]);
  facts.exit_code = exit_text(row[12]);
  facts.ended_at = read_epoch(row[7]);
  if (!facts.started_at || !facts.ended_at || !facts.elapsed_seconds) return;
  const double whole =
      static_cast<double>(facts.ended_at->nanoseconds - facts.started_at->nanoseconds) / kSecond;
  facts.suspended_seconds = std::max(0.0, whole - *facts.elapsed_seconds);
}

QueuedJob read_queued(std::span<const std::string_view> row) {
  const std::string_view state = row[11];
  QueuedJob job{.id = std::string(row[0]),
                .is_final = is_final_state(state),
                .running = state == "RUNNING" || state == "SUSPENDED" || state == "COMPLETING" ||
                           state == "STOPPED"};
  JobFacts& facts = job.facts;
  facts.job = {.id = job.id,
               .name = optional_text(row[21]),
               .account = optional_text(row[17]),
               .partition = optional_text(row[19]),
               .qos = optional_text(row[18]),
               .submitted_at = read_epoch(row[5]),
               .work_dir = optional_text(row[20])};
  if (row[2] != "N/A")
    facts.job.array = JobArray{.job_id = std::string(row[1]), .task_id = std::string(row[2])};
  if (is_number(row[16])) facts.job.het = HetJob{.job_id = std::string(row[16])};
  facts.user = {.id = std::string(row[3]), .group_id = std::string(row[4]), .verified = true};
  if (const auto restarts = parse_number<std::uint64_t>(row[10]))
    facts.restarts = static_cast<std::uint32_t>(*restarts);
  facts.started_at = read_epoch(row[6]);
  facts.request = read_request(row[15], row[13], row[14], row[9]);
  facts.elapsed_seconds = read_duration(row[8]);
  if (job.is_final) read_end(row, facts);
  return job;
}

}  // namespace

std::string queue_format(std::string_view guard) { return squeue_format(kQueueFields, guard); }

Result<std::vector<QueuedJob>> parse_queue(std::string_view answer, std::string_view guard) {
  const auto rows = split_rows<kQueueFields.size()>(answer, guard, "squeue");
  if (!rows) return rows.error();
  std::vector<QueuedJob> jobs;
  for (const auto& row : *rows) {
    if (!is_number(row[0]) || !is_number(row[1]) || !is_number(row[3]) || !is_number(row[4]))
      return odd_answer("squeue");
    jobs.push_back(read_queued(row));
  }
  return jobs;
}

}  // namespace scriptorium::usage

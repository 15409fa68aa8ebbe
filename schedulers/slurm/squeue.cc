#include "schedulers/slurm/squeue.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/time.h"
#include "schedulers/slurm_client/text.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;
using namespace slurm_client;

constexpr std::array kNumberFields{
    "JobID"sv,    "ArrayJobID"sv,   "ArrayTaskID"sv, "UserID"sv,       "GroupID"sv,  "SubmitTime"sv,
    "HetJobID"sv, "HetJobOffset"sv, "RestartCnt"sv,  "StateCompact"sv, "BatchFlag"sv};
constexpr std::array kTextFields{"Account"sv, "QOS"sv, "Partition"sv, "WorkDir"sv, "Name"sv};
constexpr std::string_view kNone = "N/A";

// "N/A" is nothing; false if the field is neither that nor a number.
template <typename Number>
bool read_optional(std::string_view text, std::optional<Number>& into) noexcept {
  if (text == kNone) return true;
  into = parse_number<Number>(text);
  return into.has_value();
}

bool is_task_list(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || c == ',' || c == ':' || c == '%' || c == '-';
  });
}

bool is_state(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_upper);
}

// Takes one row from the front of `answer`; nothing if one field is not as Slurm writes it.
std::optional<QueueRow> take_row(std::string_view& answer, std::string_view guard) {
  const auto numbers = take_fields<kNumberFields.size()>(answer, "|");
  const auto texts = take_fields<kTextFields.size()>(answer, guard);
  if (!numbers || !texts || !answer.starts_with('\n')) return std::nullopt;
  answer.remove_prefix(1);
  const auto& [job, array, tasks, uid, gid, submitted, het_job, het_component, restarts, state,
               batch] = *numbers;
  const auto job_id = parse_number<std::uint64_t>(job);
  const auto array_job_id = parse_number<std::uint64_t>(array);
  const auto user = parse_number<std::uint32_t>(uid);
  const auto group = parse_number<std::uint32_t>(gid);
  const auto restarted = parse_number<std::uint64_t>(restarts);
  if (!job_id || !array_job_id || !user || !group || !restarted || !is_state(state) ||
      (batch != "0" && batch != "1"))
    return std::nullopt;
  const auto& [account, qos, partition, work_dir, name] = *texts;
  QueueRow row{.job_id = *job_id,
               .array_job_id = *array_job_id,
               .uid = *user,
               .gid = *group,
               .restarts = *restarted,
               .state = std::string(state),
               .batch = batch == "1",
               .account = optional_text(account),
               .qos = optional_text(qos),
               .partition = optional_text(partition),
               .work_dir = optional_text(work_dir),
               .name = optional_text(name)};
  if (tasks != kNone) {
    if (!is_task_list(tasks)) return std::nullopt;
    row.tasks = std::string(tasks);
  }
  if (!read_optional(submitted, row.submitted) || !read_optional(het_job, row.het_job_id) ||
      !read_optional(het_component, row.het_component)) {
    return std::nullopt;
  }
  return row;
}

// Nanoseconds to whole seconds, downwards also before 1970.
std::int64_t floor_seconds(std::int64_t nanoseconds) noexcept {
  return nanoseconds / kSecond - (nanoseconds % kSecond < 0 ? 1 : 0);
}

}  // namespace

std::vector<std::string> queue_arguments(const std::optional<std::string>& job) {
  // Of a federation, only this cluster's: its slurmctld writes our spool, and is not asked about
  // the federation first.
  std::vector<std::string> result{"-h", "-a", "--local", "-t", "all"};
  if (job) {
    result.emplace_back("-j");
    result.push_back(*job);
  }
  return result;
}

std::string queue_format(std::string_view guard) {
  return squeue_format(kNumberFields, "|") + "," + squeue_format(kTextFields, guard);
}

Result<std::vector<QueueRow>> parse_queue(std::string_view answer, std::string_view guard) {
  std::vector<QueueRow> rows;
  while (!answer.empty()) {
    auto row = take_row(answer, guard);
    if (!row) return odd_answer("squeue");
    rows.push_back(*std::move(row));
  }
  return rows;
}

NumberUse use_of(const QueueRow& row) {
  if (row.array_job_id != 0 && row.job_id != row.array_job_id)
    return {row.job_id, NumberUse::Kind::kPartOfAnother};
  return {row.job_id, row.batch ? NumberUse::Kind::kOwnEntry : NumberUse::Kind::kWithoutScript};
}

RowsById::RowsById(const std::vector<QueueRow>& all, const std::set<std::uint64_t>& wanted) {
  for (const QueueRow& row : all) {
    // The spool of a burst-buffer array has an entry for a task, under the task's own id.
    if (wanted.contains(row.array_job_id)) {
      rows_[row.array_job_id].push_back(&row);
    } else if (wanted.contains(row.job_id)) {
      tasks_[row.job_id].push_back(&row);
    }
  }
}

const std::vector<const QueueRow*>& RowsById::of(std::uint64_t id) const {
  static const std::vector<const QueueRow*> no_rows;
  if (const auto found = rows_.find(id); found != rows_.end()) return found->second;
  if (const auto found = tasks_.find(id); found != tasks_.end()) return found->second;
  return no_rows;
}

std::optional<std::uint64_t> job_number(std::string_view id) noexcept {
  const auto number = parse_number<std::uint64_t>(id);
  return number == 0 ? std::nullopt : number;
}

bool belongs(const QueueRow& row, const EntryIdentity& entry) noexcept {
  if (entry.unchanged) return true;
  if (entry.id_came_again || row.restarts != 0 || !row.submitted) return false;
  // slurmctld notes the submission first and writes the script at once, so they share a second or
  // differ by one.
  const std::int64_t written = floor_seconds(entry.script_mtime_ns);
  return *row.submitted == written || *row.submitted == written - 1;
}

bool times_are_alike(std::int64_t script_mtime_ns, std::int64_t other_mtime_ns) noexcept {
  const std::int64_t one = floor_seconds(script_mtime_ns);
  const std::int64_t other = floor_seconds(other_mtime_ns);
  return one < other ? other - one <= 1 : one - other <= 1;
}

namespace {

std::optional<Timestamp> first_submission(const std::vector<const QueueRow*>& rows) {
  std::optional<Timestamp> first;
  for (const QueueRow* row : rows) {
    // A requeue gives the job a new submit time; the first one is then unknown.
    if (row->restarts != 0 || !row->submitted ||
        *row->submitted > std::numeric_limits<std::int64_t>::max() / kSecond)
      continue;
    const Timestamp submitted{*row->submitted * kSecond};
    if (!first || submitted < *first) first = submitted;
  }
  return first;
}

// `only`: there is no other row of the job.
JobArray array_of(const QueueRow& row, const EntryIdentity& entry, bool only) {
  JobArray array{.job_id = std::to_string(row.array_job_id)};
  if (row.array_job_id != entry.job_id) {
    array.task_id = row.tasks;  // the entry is one task's own
  } else if (only && row.job_id == row.array_job_id && row.state == "PD" && row.restarts == 0) {
    // Once a task has started, squeue lists only those that still wait.
    array.task_spec = row.tasks;
  }
  return array;
}

}  // namespace

OwnerAnswer make_answer(const std::vector<const QueueRow*>& rows, const EntryIdentity& entry) {
  OwnerAnswer answer;
  answer.state = OwnerAnswer::State::kUnknown;
  const QueueRow* chosen = nullptr;
  for (const QueueRow* row : rows) {
    // All tasks of an array have one owner. An answer that says otherwise mixes two jobs: ask
    // again.
    if (row->uid != rows.front()->uid || row->gid != rows.front()->gid) return {};
    if (!belongs(*row, entry)) continue;
    if (chosen == nullptr || (row->job_id == entry.job_id && chosen->job_id != entry.job_id))
      chosen = row;
  }
  if (chosen == nullptr) {
    answer.user.unverified_reason =
        "slurmctld lists another job of this id, or a requeued one whose entry has changed";
    return answer;
  }

  answer.state = OwnerAnswer::State::kFound;
  answer.user.id = std::to_string(chosen->uid);
  answer.user.group_id = std::to_string(chosen->gid);
  answer.user.verified = true;
  answer.submitted_at = first_submission(rows);
  if (!chosen->tasks.empty()) answer.array = array_of(*chosen, entry, rows.size() == 1);
  if (chosen->het_job_id && chosen->het_component) {
    answer.het = HetJob{.job_id = std::to_string(*chosen->het_job_id),
                        .component = chosen->het_component,
                        .synthetic = *chosen->het_component > 0 && entry.stub};
  }
  answer.name = chosen->name;
  answer.account = chosen->account;
  answer.partition = chosen->partition;
  answer.qos = chosen->qos;
  answer.work_dir = chosen->work_dir;
  return answer;
}

}  // namespace scriptorium::slurm

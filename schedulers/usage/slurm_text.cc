#include "schedulers/usage/slurm_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/base/accounts.h"
#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/time.h"

namespace scriptorium::usage {
namespace {

// In the order of parse_queue().
constexpr std::array<const char*, 23> kQueueFields{
    "JobID",     "ArrayJobID", "ArrayTaskID", "UserID",     "GroupID",    "SubmitTime",
    "StartTime", "EndTime",    "TimeUsed",    "TimeLimit",  "RestartCnt", "State",
    "exit_code", "NumNodes",   "NumCPUs",     "tres-alloc", "HetJobID",   "Account",
    "QOS",       "Partition",  "WorkDir",     "BatchHost",  "Name"};

std::optional<Timestamp> read_epoch(std::string_view text) {
  const auto seconds = parse_number<std::uint64_t>(text);
  if (!seconds || *seconds == 0 || *seconds > std::numeric_limits<std::int64_t>::max() / kSecond)
    return std::nullopt;
  return Timestamp{static_cast<std::int64_t>(*seconds) * kSecond};
}

bool is_number(std::string_view text) { return parse_number<std::uint64_t>(text).has_value(); }

// The wait status of a batch script as "status:signal".
std::optional<std::string> exit_text(std::string_view raw) {
  const auto code = parse_number<std::uint64_t>(raw);
  if (!code) return std::nullopt;
  return std::to_string((*code >> 8U) & 0xffU) + ":" + std::to_string(*code & 0x7fU);
}

// One that the name service does not know, or cannot look up now, has none.
template <typename Record>
std::optional<std::string> name_of(const Result<std::optional<Record>>& found) {
  return found && *found ? read_text((*found)->name) : std::nullopt;
}

}  // namespace

Result<std::vector<std::vector<std::string_view>>> split_rows(std::string_view answer,
                                                              std::string_view guard,
                                                              std::size_t fields,
                                                              const std::string& command) {
  std::vector<std::vector<std::string_view>> rows;
  while (!answer.empty()) {
    std::vector<std::string_view>& row = rows.emplace_back();
    for (std::size_t i = 0; i < fields; ++i) {
      const std::size_t end = guard.empty() ? std::string_view::npos : answer.find(guard);
      if (end == std::string_view::npos) {
        return Error{
            ErrorKind::kTransient,
            command + ": its answer is not as Slurm writes it, or cut short; all of it is refused"};
      }
      row.push_back(answer.substr(0, end));
      answer.remove_prefix(end + guard.size());
    }
    if (!answer.starts_with('\n')) {
      return Error{
          ErrorKind::kTransient,
          command +
              ": a row of its answer has more fields than were asked for; all of it is refused"};
    }
    answer.remove_prefix(1);
  }
  return rows;
}

std::optional<double> read_duration(std::string_view text) noexcept {
  double days = 0;
  if (const auto dash = text.find('-'); dash != std::string_view::npos) {
    const auto whole = parse_number<std::uint64_t>(text.substr(0, dash));
    constexpr std::uint64_t kMostDays = 1'000'000'000;  // NO_VAL64 seconds are more
    if (!whole || *whole > kMostDays) return std::nullopt;
    days = static_cast<double>(*whole);
    text.remove_prefix(dash + 1);
  }
  double fraction = 0;
  if (const auto dot = text.find('.'); dot != std::string_view::npos) {
    const std::string_view digits = text.substr(dot + 1);
    const auto value = parse_number<std::uint64_t>(digits);
    if (!value) return std::nullopt;
    fraction = static_cast<double>(*value) / std::pow(10.0, static_cast<double>(digits.size()));
    text = text.substr(0, dot);
  }
  double seconds = 0;
  for (int parts = 0;; ++parts) {
    const auto colon = text.find(':');
    const auto part = parse_number<std::uint64_t>(text.substr(0, colon));
    if (!part || parts > 2) return std::nullopt;
    seconds = seconds * 60 + static_cast<double>(*part);
    if (colon == std::string_view::npos)
      return parts == 0 ? std::nullopt : std::optional(days * 86400 + seconds + fraction);
    text.remove_prefix(colon + 1);
  }
}

std::optional<std::uint64_t> read_size(std::string_view text) noexcept {
  const auto value = take_number<double>(text);
  if (!value || !(*value >= 0)) return std::nullopt;
  constexpr std::string_view kUnits = "KMGTP";
  double factor = 1;
  if (!text.empty()) {
    const auto place = kUnits.find(text[0]);
    if (place == std::string_view::npos || text.size() > 1) return std::nullopt;
    factor = std::pow(1024.0, static_cast<double>(place + 1));
  }
  if (*value * factor > 9e18) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(*value * factor));
}

std::optional<std::string_view> tres(std::string_view list, std::string_view name) noexcept {
  while (!list.empty()) {
    const std::string_view item = take_until(list, ',');
    if (item.size() > name.size() && item.starts_with(name) && item[name.size()] == '=')
      return item.substr(name.size() + 1);
  }
  return std::nullopt;
}

std::optional<std::uint32_t> read_count(std::string_view text) noexcept {
  constexpr std::uint32_t kInfinite = 0xfffffffd;  // and NO_VAL, one more
  const auto value = parse_number<std::uint32_t>(text);
  return value && *value < kInfinite ? value : std::nullopt;
}

namespace {

constexpr std::size_t kMostHosts = 65536;

// Adds every name that `text`, such as "n[01-03,7]-ib", means, with `prefix` before it.
bool expand_hosts(const std::string& prefix, std::string_view text,
                  std::vector<std::string>& into) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos) {
    into.push_back(prefix + std::string(text));
    return into.size() <= kMostHosts;
  }
  const std::size_t close = text.find(']', open);
  if (close == std::string_view::npos) return false;
  const std::string stem = prefix + std::string(text.substr(0, open));
  const std::string_view rest = text.substr(close + 1);
  for (std::string_view ranges = text.substr(open + 1, close - open - 1); !ranges.empty();) {
    const std::string_view range = take_until(ranges, ',');
    const std::string_view low = range.substr(0, range.find('-'));
    const auto first = parse_number<std::uint32_t>(low);
    const auto last = parse_number<std::uint32_t>(
        low.size() == range.size() ? low : range.substr(low.size() + 1));
    if (!first || !last || *last < *first || *last - *first > kMostHosts) return false;
    for (std::uint32_t number = *first; number <= *last; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      if (!expand_hosts(stem + digits, rest, into)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> read_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  while (!list.empty()) {
    std::size_t end = 0;
    for (bool inside = false; end < list.size() && (inside || list[end] != ','); ++end)
      inside = list[end] == '[' || (inside && list[end] != ']');
    // "None assigned" and "(null)" are no names.
    const std::string_view item = list.substr(0, end);
    if (end == 0 || item.find_first_of(" (") != std::string_view::npos ||
        !expand_hosts("", item, hosts))
      return {};
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return hosts;
}

std::optional<std::string> read_text(std::string_view text) {
  if (text.empty() || text == "(null)") return std::nullopt;
  return std::string(text);
}

namespace {

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

bool is_final_state(std::string_view state) noexcept {
  static constexpr std::array kFinal{"COMPLETED",     "CANCELLED", "FAILED",    "TIMEOUT",
                                     "NODE_FAIL",     "PREEMPTED", "BOOT_FAIL", "DEADLINE",
                                     "OUT_OF_MEMORY", "REVOKED"};
  return std::any_of(kFinal.begin(), kFinal.end(),
                     [&](std::string_view word) { return word == state; });
}

void add_names(User& user) {
  const auto number = [](const std::optional<std::string>& id) {
    return parse_number<std::uint64_t>(id.value_or(""));
  };
  if (const auto id = number(user.id); id && !user.name)
    user.name = name_of(find_user(static_cast<uid_t>(*id)));
  if (const auto id = number(user.group_id); id && !user.group_name)
    user.group_name = name_of(find_group(static_cast<gid_t>(*id)));
}

// ---- squeue

std::string queue_format(std::string_view guard) {
  std::string format;
  for (const char* field : kQueueFields) {
    format += format.empty() ? "" : ",";
    // What follows the colon is a width if it begins with a digit, and the text between columns if
    // not.
    format.append(field).append(":@").append(guard);
  }
  return format;
}

namespace {

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
  if (const auto host = read_text(row[21]); host && *host != "n/a") job.batch_host = *host;
  JobFacts& facts = job.facts;
  facts.job = {.id = job.id,
               .name = read_text(row[22]),
               .account = read_text(row[17]),
               .partition = read_text(row[19]),
               .qos = read_text(row[18]),
               .submitted_at = read_epoch(row[5]),
               .work_dir = read_text(row[20])};
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

Result<std::vector<QueuedJob>> parse_queue(std::string_view answer, std::string_view guard) {
  auto rows = split_rows(answer, "@" + std::string(guard), kQueueFields.size(), "squeue");
  if (!rows) return rows.error();
  std::vector<QueuedJob> jobs;
  for (const auto& row : *rows) {
    if (!is_number(row[0]) || !is_number(row[1]) || !is_number(row[3]) || !is_number(row[4])) {
      return Error{ErrorKind::kTransient,
                   "squeue: a row without numbers of job and user; all of the answer is refused"};
    }
    jobs.push_back(read_queued(row));
  }
  return jobs;
}

}  // namespace scriptorium::usage

#include "schedulers/slurm/squeue.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

constexpr std::size_t kNumberFields = 10;
constexpr std::size_t kTextFields = 9;
constexpr std::size_t kUseFields = 3;
constexpr std::string_view kNone = "N/A";
constexpr std::int64_t kSecond = 1'000'000'000;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

template <typename Number>
std::optional<Number> read_number(std::string_view text) noexcept {
  Number value = 0;
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "N/A" is nothing; false if the field is neither that nor a number.
template <typename Number>
bool read_optional(std::string_view text, std::optional<Number>& into) noexcept {
  if (text == kNone) return true;
  into = read_number<Number>(text);
  return into.has_value();
}

bool is_task_list(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return is_digit(c) || c == ',' || c == ':' || c == '%' || c == '-'; });
}

bool is_state(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

// A line of fields that end with '|' each; nothing if it has another number of them.
template <std::size_t kFields>
std::optional<std::array<std::string_view, kFields>> split_row(std::string_view line) {
  std::array<std::string_view, kFields> fields;
  for (std::string_view& field : fields) {
    const std::size_t end = line.find('|');
    if (end == std::string_view::npos) return std::nullopt;
    field = line.substr(0, end);
    line.remove_prefix(end + 1);
  }
  if (!line.empty()) return std::nullopt;
  return fields;
}

std::optional<QueueRow> read_row(std::string_view line) {
  const auto fields = split_row<kNumberFields>(line);
  if (!fields) return std::nullopt;
  const auto& [job, array, tasks, uid, gid, submitted, het_job, het_component, restarts, state] = *fields;
  const auto job_id = read_number<std::uint64_t>(job);
  const auto array_job_id = read_number<std::uint64_t>(array);
  const auto user = read_number<std::uint32_t>(uid);
  const auto group = read_number<std::uint32_t>(gid);
  const auto restarted = read_number<std::uint64_t>(restarts);
  if (!job_id || !array_job_id || !user || !group || !restarted || !is_state(state)) return std::nullopt;
  QueueRow row{.job_id = *job_id,
               .array_job_id = *array_job_id,
               .uid = *user,
               .gid = *group,
               .restarts = *restarted,
               .state = std::string(state)};
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

std::optional<std::string> read_text(std::string_view text) {
  if (text.empty() || text == "(null)") return std::nullopt;
  return std::string(text);
}

// Constant words: status counts failures by their message.
Error odd_answer(std::string_view question) {
  return {ErrorKind::kTransient,
          "squeue: a row of " + std::string(question) + " is not as Slurm writes it; the whole answer is refused"};
}

// One row a line; one odd line refuses them all.
template <typename Row, typename Read>
Result<std::vector<Row>> parse_lines(std::string_view answer, std::string_view question, Read read) {
  std::vector<Row> rows;
  while (!answer.empty()) {
    const std::size_t end = answer.find('\n');
    if (end == std::string_view::npos) return odd_answer(question);  // cut short
    std::optional<Row> row = read(answer.substr(0, end));
    if (!row) return odd_answer(question);
    rows.push_back(*std::move(row));
    answer.remove_prefix(end + 1);
  }
  return rows;
}

// An array has one entry, under its own number; each of its tasks gets a number when it starts.
std::optional<NumberUse> read_use(std::string_view line) {
  const auto fields = split_row<kUseFields>(line);
  if (!fields) return std::nullopt;
  const auto& [job, array, batch] = *fields;
  const auto number = read_number<std::uint64_t>(job);
  const auto array_number = read_number<std::uint64_t>(array);
  if (!number || !array_number || (batch != "0" && batch != "1")) return std::nullopt;
  if (*array_number != 0 && *number != *array_number) return NumberUse{*number, NumberUse::Kind::kPartOfAnother};
  return NumberUse{*number, batch == "1" ? NumberUse::Kind::kOwnEntry : NumberUse::Kind::kWithoutScript};
}

std::vector<std::string> arguments(const std::optional<std::string>& job) {
  std::vector<std::string> result{"-h", "-a", "-t", "all"};
  if (job) {
    result.emplace_back("-j");
    result.push_back(*job);
  }
  return result;
}

// Nanoseconds to whole seconds, downwards also before 1970.
std::int64_t floor_seconds(std::int64_t nanoseconds) noexcept {
  return nanoseconds / kSecond - (nanoseconds % kSecond < 0 ? 1 : 0);
}

const TextRow* find_text(const std::vector<const TextRow*>& texts, const QueueRow& row) noexcept {
  const TextRow* found = nullptr;
  for (const TextRow* text : texts) {
    // Between the two questions a task may have started, or the id may have gone to another job.
    if (text->uid != row.uid || text->array_job_id != row.array_job_id || text->submitted != row.submitted) continue;
    if (text->job_id == row.job_id) return text;
    if (found == nullptr) found = text;
  }
  return found;
}

}  // namespace

std::vector<std::string> number_arguments(const std::optional<std::string>& job) {
  std::vector<std::string> result = arguments(job);
  result.emplace_back("-O");
  // Without ":|" each column would be cut at 20 characters.
  result.emplace_back(
      "JobID:|,ArrayJobID:|,ArrayTaskID:|,UserID:|,GroupID:|,SubmitTime:|,HetJobID:|,HetJobOffset:|,RestartCnt:|,StateCompact:|");
  return result;
}

std::vector<std::string> text_arguments(const std::optional<std::string>& job) { return arguments(job); }

std::string text_format(std::string_view nonce) {
  const std::string x(nonce);
  std::string format = x + '@';
  for (const std::string_view field : {"%A"sv, "%F"sv, "%U"sv, "%V"sv, "%a"sv, "%q"sv, "%P"sv, "%Z"sv, "%j"sv}) {
    format += field;
    format += x;
  }
  return format + '$';
}

Result<std::vector<QueueRow>> parse_numbers(std::string_view answer) {
  return parse_lines<QueueRow>(answer, "numbers", read_row);
}

std::vector<std::string> use_arguments() {
  std::vector<std::string> result = arguments(std::nullopt);
  result.emplace_back("-O");
  result.emplace_back("JobID:|,ArrayJobID:|,BatchFlag:|");
  return result;
}

Result<std::vector<NumberUse>> parse_uses(std::string_view answer) { return parse_lines<NumberUse>(answer, "uses", read_use); }

Result<std::vector<TextRow>> parse_texts(std::string_view answer, std::string_view nonce) {
  std::vector<TextRow> rows;
  const std::string begin = std::string(nonce) + '@';
  const std::string tail = "$\n";
  while (!answer.empty()) {
    if (nonce.empty() || !answer.starts_with(begin)) return odd_answer("names");
    answer.remove_prefix(begin.size());
    std::array<std::string_view, kTextFields> fields;
    for (std::string_view& field : fields) {
      const std::size_t end = answer.find(nonce);
      if (end == std::string_view::npos) return odd_answer("names");
      field = answer.substr(0, end);
      answer.remove_prefix(end + nonce.size());
    }
    if (!answer.starts_with(tail)) return odd_answer("names");
    answer.remove_prefix(tail.size());

    const auto& [job, array, uid, submitted, account, qos, partition, work_dir, name] = fields;
    const auto job_id = read_number<std::uint64_t>(job);
    const auto array_job_id = read_number<std::uint64_t>(array);
    const auto user = read_number<std::uint32_t>(uid);
    TextRow row;
    if (!job_id || !array_job_id || !user || !read_optional(submitted, row.submitted)) return odd_answer("names");
    row.job_id = *job_id;
    row.array_job_id = *array_job_id;
    row.uid = *user;
    row.account = read_text(account);
    row.qos = read_text(qos);
    row.partition = read_text(partition);
    row.work_dir = read_text(work_dir);
    row.name = read_text(name);
    rows.push_back(std::move(row));
  }
  return rows;
}

bool says_unknown_job(std::string_view standard_error) noexcept {
  return standard_error.find("Invalid job id") != std::string_view::npos;
}

bool belongs(const QueueRow& row, const EntryIdentity& entry) noexcept {
  if (entry.unchanged) return true;
  if (entry.id_came_again || row.restarts != 0 || !row.submitted) return false;
  // slurmctld notes the submission first and writes the script at once, so they share a second or differ by one.
  const std::int64_t written = floor_seconds(entry.script_mtime_ns);
  return *row.submitted == written || *row.submitted == written - 1;
}

OwnerAnswer make_answer(const std::vector<const QueueRow*>& rows, const std::vector<const TextRow*>& texts,
                        const EntryIdentity& entry) {
  OwnerAnswer answer;
  answer.state = OwnerAnswer::State::kUnknown;
  const QueueRow* chosen = nullptr;
  for (const QueueRow* row : rows) {
    // All tasks of an array have one owner. An answer that says otherwise mixes two jobs: ask again.
    if (row->uid != rows.front()->uid || row->gid != rows.front()->gid) return {};
    if (!belongs(*row, entry)) continue;
    if (chosen == nullptr || (row->job_id == entry.job_id && chosen->job_id != entry.job_id)) chosen = row;
  }
  if (chosen == nullptr) return answer;

  answer.state = OwnerAnswer::State::kFound;
  answer.user.id = std::to_string(chosen->uid);
  answer.user.group_id = std::to_string(chosen->gid);
  answer.user.verified = true;
  for (const QueueRow* row : rows) {
    // A requeue gives the job a new submit time; the first one is then unknown.
    if (row->restarts != 0 || !row->submitted || *row->submitted > std::numeric_limits<std::int64_t>::max() / kSecond) continue;
    const Timestamp submitted{*row->submitted * kSecond};
    if (!answer.submitted_at || submitted < *answer.submitted_at) answer.submitted_at = submitted;
  }
  if (!chosen->tasks.empty()) {
    JobArray array{.job_id = std::to_string(chosen->array_job_id)};
    if (chosen->array_job_id != entry.job_id) {
      array.task_id = chosen->tasks;  // the entry is one task's own
    } else if (rows.size() == 1 && chosen->job_id == chosen->array_job_id && chosen->state == "PD" && chosen->restarts == 0) {
      array.task_spec = chosen->tasks;  // once a task has started, squeue lists only those that still wait
    }
    answer.array = std::move(array);
  }
  if (chosen->het_job_id && chosen->het_component) {
    answer.het = HetJob{.job_id = std::to_string(*chosen->het_job_id),
                        .component = chosen->het_component,
                        .synthetic = *chosen->het_component > 0 && entry.stub};
  }
  if (const TextRow* text = find_text(texts, *chosen)) {
    answer.name = text->name;
    answer.account = text->account;
    answer.partition = text->partition;
    answer.qos = text->qos;
    answer.work_dir = text->work_dir;
  }
  return answer;
}

}  // namespace scriptorium::slurm

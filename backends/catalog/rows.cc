#include "backends/catalog/rows.h"

#include <algorithm>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

// The order of RowReader::take() and RowWriter.
constexpr const char* kJobColumns =
    "owner, cluster, scheduler, job, time, event, script, environment, record, name, array_job, "
    "array_spec, het, user, uid, grp, account, partition, qos, work_dir, interpreter, directives, "
    "modules, software, script_size, environment_size, flags, family";
constexpr const char* kOutcomeColumns =
    "state, exit_code, exit_signal, started, ended, elapsed, cpu_seconds, cpus, cpu_ratio, "
    "memory_peak, memory_limit, gpus, gpu_ratio, time_limit, nodes, findings, lives, runs, "
    "failed_runs, account_named";

std::string with_prefix(std::string_view prefix, std::string_view columns) {
  std::string result;
  while (!columns.empty()) {
    if (!result.empty()) result += ", ";
    const std::size_t comma = std::min(columns.find(", "), columns.size());
    result.append(prefix).append(columns.substr(0, comma));
    columns.remove_prefix(std::min(comma + 2, columns.size()));
  }
  return result;
}

std::string assignments(std::string_view columns) {
  std::string result;
  while (!columns.empty()) {
    const std::size_t comma = std::min(columns.find(", "), columns.size());
    if (!result.empty()) result += ", ";
    result.append(columns.substr(0, comma)).append(" = ?");
    columns.remove_prefix(std::min(comma + 2, columns.size()));
  }
  return result;
}

std::string select_jobs() {
  return "SELECT j.id, " + with_prefix("j.", kJobColumns) + ", c.sha, o.job, " +
         with_prefix("o.", kOutcomeColumns) +
         " FROM jobs j LEFT JOIN contents c ON c.id = j.script LEFT JOIN outcomes o ON o.job = "
         "j.id WHERE ";
}

bool has_outcome(const JobRow& row) {
  return row.state || row.exit_code || row.exit_signal || row.started_at || row.ended_at ||
         row.elapsed_seconds || row.cpu_seconds || row.cpus || row.cpu_ratio ||
         row.memory_peak_bytes || row.memory_limit_bytes || row.gpus || row.gpu_ratio ||
         row.time_limit_seconds || !row.nodes.empty() || !row.findings.empty() || row.lives > 0 ||
         row.runs > 0;
}

std::int64_t flags_of(const JobRow& row) {
  return (row.verified ? kVerifiedFlag : 0) | (row.complete ? 0 : kIncompleteFlag) |
         (row.redacted ? kRedactedFlag : 0);
}

// A column's names.id, and the field that the name has.
class NameIds {
 public:
  explicit NameIds(NameWriter& names) : names_(names) {}
  std::optional<std::int64_t> operator()(QueryField field, const std::optional<std::string>& text) {
    return names_.id(name_field(field), text);
  }
  std::optional<std::int64_t> operator()(std::int64_t field,
                                         const std::optional<std::string>& text) {
    return names_.id(field, text);
  }
  std::optional<std::int64_t> list(std::int64_t field, QueryField item_field,
                                   const std::vector<std::string>& items) {
    if (items.empty()) return std::nullopt;
    return names_.list_id(field, item_field, items);
  }

 private:
  NameWriter& names_;
};

void bind_job(sqlite::Statement& into, const JobEntry& entry, NameWriter& writer) {
  const JobRow& row = entry.row;
  NameIds names(writer);
  const auto cluster = names(QueryField::kCluster, row.cluster);
  const auto scheduler = names(QueryField::kScheduler, row.scheduler);
  into.bind(entry.owner, cluster, scheduler);
  if (const auto number = job_number(row.id)) {
    into.bind(*number);
  } else {
    into.bind(row.id);
  }
  into.bind(row.time);
  if (row.event_id.empty()) {
    into.bind(nullptr);
  } else {
    into.bind(sqlite::Id{row.event_id});
  }
  into.bind(entry.script, entry.environment, entry.record);
  into.bind(names(QueryField::kName, row.name), names(QueryField::kArray, row.array_job_id),
            names(kNameOfArraySpec, row.array_task_spec), names(kNameOfHet, row.het_job_id),
            names(QueryField::kUser, row.user), names(kNameOfUid, row.uid),
            names(kNameOfGroup, row.group), names(QueryField::kAccount, row.account),
            names(QueryField::kPartition, row.partition), names(QueryField::kQos, row.qos),
            names(QueryField::kWorkDir, row.work_dir),
            names(QueryField::kInterpreter, row.interpreter),
            names.list(kNameOfDirectives, QueryField::kDirective, row.directives),
            names.list(kNameOfModules, QueryField::kModule, row.modules),
            names.list(kNameOfSoftware, QueryField::kSoftware, row.software));
  into.bind(row.script_size, row.environment_size, flags_of(row), row.family);
}

void bind_outcome(sqlite::Statement& into, const JobEntry& entry, NameWriter& writer) {
  const JobRow& row = entry.row;
  NameIds names(writer);
  const auto state = names(QueryField::kState, row.state);
  const auto nodes = names.list(kNameOfNodes, QueryField::kNode, row.nodes);
  const auto findings = names.list(kNameOfFindings, QueryField::kFinding, row.findings);
  into.bind(entry.id, state, row.exit_code, row.exit_signal, row.started_at, row.ended_at,
            row.elapsed_seconds, row.cpu_seconds, row.cpus, row.cpu_ratio, row.memory_peak_bytes,
            row.memory_limit_bytes, row.gpus, row.gpu_ratio, row.time_limit_seconds, nodes,
            findings, row.lives, row.runs, row.failed_runs);
  if (row.account_named_at) {
    into.bind(row.account_named_at->nanoseconds / kSecond);
  } else {
    into.bind(nullptr);
  }
}

// Reads the columns of a row one after the other.
class Columns {
 public:
  Columns(const sqlite::Statement& from, NameReader& names, int first = 0)
      : from_(from), names_(names), next_(first) {}

  template <typename Number>
  void number(Number& into) {
    into = static_cast<Number>(from_.integer(next_++));
  }
  template <typename Number>
  void number(std::optional<Number>& into) {
    if (from_.is_null(next_)) {
      into.reset();
    } else {
      into = static_cast<Number>(from_.integer(next_));
    }
    ++next_;
  }
  void time(std::optional<Timestamp>& into) {
    std::optional<std::int64_t> value;
    number(value);
    if (value) into = Timestamp{*value};
  }
  void seconds(std::optional<Timestamp>& into) {
    time(into);
    if (into) into->nanoseconds *= kSecond;
  }
  void real(std::optional<double>& into) {
    if (!from_.is_null(next_)) into = from_.real(next_);
    ++next_;
  }
  void name(std::optional<std::string>& into) {
    if (!from_.is_null(next_)) into = std::string(names_.text(from_.integer(next_)));
    ++next_;
  }
  void name(std::string& into) { into = names_.text(from_.integer(next_++)); }
  void lines(std::vector<std::string>& into) {
    if (!from_.is_null(next_)) into = names_.items(from_.integer(next_));
    ++next_;
  }
  // Text that is an integer if it is written in digits.
  void text(std::string& into) { into = from_.text(next_++); }
  void id(std::string& into) { into = from_.id(next_++); }
  void hash(std::optional<std::string>& into) {
    if (!from_.is_null(next_)) into = hex_encode(from_.text(next_));
    ++next_;
  }
  bool skip_null() { return from_.is_null(next_++); }

 private:
  const sqlite::Statement& from_;
  NameReader& names_;
  int next_;
};

void read_outcome(Columns& columns, JobRow& row) {
  columns.name(row.state);
  columns.number(row.exit_code);
  columns.number(row.exit_signal);
  columns.time(row.started_at);
  columns.time(row.ended_at);
  columns.real(row.elapsed_seconds);
  columns.real(row.cpu_seconds);
  columns.number(row.cpus);
  columns.real(row.cpu_ratio);
  columns.number(row.memory_peak_bytes);
  columns.number(row.memory_limit_bytes);
  columns.number(row.gpus);
  columns.real(row.gpu_ratio);
  columns.number(row.time_limit_seconds);
  columns.lines(row.nodes);
  columns.lines(row.findings);
  columns.number(row.lives);
  columns.number(row.runs);
  columns.number(row.failed_runs);
  columns.seconds(row.account_named_at);
}

// "9812 python3"
std::vector<std::string> lines_of(const std::vector<JobRun::Program>& programs) {
  std::vector<std::string> lines;
  lines.reserve(programs.size());
  for (const JobRun::Program& program : programs)
    lines.push_back(std::to_string(program.share) + ' ' + program.name);
  return lines;
}

}  // namespace

std::vector<JobRun::Program> programs_of(std::string_view text) {
  std::vector<JobRun::Program> programs;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const auto share = parse_number<std::uint32_t>(take_until(line, ' '));
    programs.push_back({std::string(line), share.value_or(0)});
  }
  return programs;
}

std::string marks(std::string_view columns) {
  std::string result = "?";
  for (const char c : columns) {
    if (c == ',') result += ", ?";
  }
  return result;
}

std::optional<std::int64_t> job_number(std::string_view job_id) noexcept {
  if (job_id.empty() || job_id.front() == '-' || (job_id.front() == '0' && job_id.size() > 1))
    return std::nullopt;
  return parse_number<std::int64_t>(job_id);
}

std::string join_lines(const std::vector<std::string>& items) {
  std::string joined;
  for (const std::string& item : items) {
    if (&item != &items.front()) joined += '\n';
    const std::size_t begin = joined.size();
    joined += item;
    std::replace(joined.begin() + static_cast<std::ptrdiff_t>(begin), joined.end(), '\n', ' ');
  }
  return joined;
}

std::vector<std::string> split_lines(std::string_view joined) {
  std::vector<std::string> items;
  while (true) {
    const std::size_t end = joined.find('\n');
    items.emplace_back(joined.substr(0, end));
    if (end == std::string_view::npos) return items;
    joined.remove_prefix(end + 1);
  }
}

// ---- reading

RowReader::RowReader(sqlite::Connection& db)
    : db_(db),
      names_(db),
      one_(db, select_jobs() + "j.id = ?"),
      range_(db, select_jobs() + "j.id >= ? AND j.id < ? ORDER BY j.id"),
      with_job_(db, "SELECT id FROM jobs WHERE job = ?") {}

bool RowReader::take(sqlite::Statement& from, JobEntry& into) {
  Columns columns(from, names_);
  JobRow& row = into.row;
  std::int64_t flags = 0;
  columns.number(into.id);
  columns.number(into.owner);
  columns.name(row.cluster);
  columns.name(row.scheduler);
  columns.text(row.id);
  columns.number(row.time.nanoseconds);
  columns.id(row.event_id);
  columns.number(into.script);
  columns.number(into.environment);
  columns.number(into.record);
  columns.name(row.name);
  columns.name(row.array_job_id);
  columns.name(row.array_task_spec);
  columns.name(row.het_job_id);
  columns.name(row.user);
  columns.name(row.uid);
  columns.name(row.group);
  columns.name(row.account);
  columns.name(row.partition);
  columns.name(row.qos);
  columns.name(row.work_dir);
  columns.name(row.interpreter);
  columns.lines(row.directives);
  columns.lines(row.modules);
  columns.lines(row.software);
  columns.number(row.script_size);
  columns.number(row.environment_size);
  columns.number(flags);
  columns.number(row.family);
  columns.hash(row.script_sha256);
  row.verified = (flags & kVerifiedFlag) != 0;
  row.complete = (flags & kIncompleteFlag) == 0;
  row.redacted = (flags & kRedactedFlag) != 0;
  if (!columns.skip_null()) read_outcome(columns, row);
  return db_.ok();
}

Result<std::optional<JobEntry>> RowReader::read_entry(std::int64_t job) {
  std::optional<JobEntry> entry;
  if (one_.bind(job).step()) take(one_, entry.emplace());
  one_.reset();
  if (auto error = db_.take_error()) return *std::move(error);
  return entry;
}

Result<std::optional<JobRow>> RowReader::read(std::int64_t job) {
  auto entry = read_entry(job);
  if (!entry) return entry.error();
  if (!*entry) return std::optional<JobRow>{};
  return std::optional<JobRow>(std::move((*entry)->row));
}

Result<void> RowReader::read_range(std::int64_t first, std::int64_t end,
                                   const std::function<bool(JobEntry&&)>& use) {
  range_.bind(first, end);
  while (range_.step()) {
    JobEntry entry;
    if (!take(range_, entry) || !use(std::move(entry))) break;
  }
  range_.reset();
  if (auto error = db_.take_error()) return *std::move(error);
  return {};
}

Result<std::vector<std::int64_t>> RowReader::jobs_with_id(std::string_view job_id) {
  std::vector<std::int64_t> jobs;
  if (const auto number = job_number(job_id)) {
    with_job_.bind(*number);
  } else {
    with_job_.bind(job_id);
  }
  while (with_job_.step()) jobs.push_back(with_job_.integer(0));
  if (auto error = db_.take_error()) return *std::move(error);
  return jobs;
}

// ---- writing

RowWriter::RowWriter(sqlite::Connection& db, NameWriter& names)
    : db_(db),
      names_(names),
      insert_(db, std::string("INSERT INTO jobs(") + kJobColumns + ") VALUES(" +
                      marks(kJobColumns) + ")"),
      update_(db, "UPDATE jobs SET " + assignments(kJobColumns) + " WHERE id = ?"),
      outcome_(db, std::string("INSERT OR REPLACE INTO outcomes(job, ") + kOutcomeColumns +
                       ") VALUES(?, " + marks(kOutcomeColumns) + ")") {}

std::int64_t RowWriter::insert(const JobEntry& entry) {
  bind_job(insert_, entry, names_);
  if (!insert_.run()) return 0;
  JobEntry with_id;
  const std::int64_t id = db_.last_insert_id();
  if (has_outcome(entry.row)) {
    with_id = entry;
    with_id.id = id;
    update_outcome(with_id);
  }
  return id;
}

void RowWriter::update(const JobEntry& entry) {
  bind_job(update_, entry, names_);
  update_.run(entry.id);
  if (has_outcome(entry.row)) update_outcome(entry);
}

void RowWriter::update_outcome(const JobEntry& entry) {
  bind_outcome(outcome_, entry, names_);
  outcome_.run();
}

// ---- runs

std::string owner_of_run(std::string_view cluster, const std::optional<std::string>& uid) {
  return std::string(cluster) + '\n' + uid.value_or("");
}

void bind_run(sqlite::Statement& into, const std::optional<JobRun>& run, NameWriter& writer) {
  if (!run) {
    for (int column = 0; column < kRunColumnCount; ++column) into.bind(nullptr);
    return;
  }
  NameIds names(writer);
  const auto user = names(QueryField::kUser, run->user);
  const std::int64_t owner =
      writer.id(kNameOfOwner, std::string_view(owner_of_run(run->cluster, run->uid)));
  const auto account = names(QueryField::kAccount, run->account);
  const auto partition = names(QueryField::kPartition, run->partition);
  const auto nodes = names.list(kNameOfNodes, QueryField::kNode, run->nodes);
  const auto findings = names.list(kNameOfFindings, QueryField::kFinding, run->findings);
  into.bind(run->ended_at.nanoseconds / kSecond, user, run->verified ? owner : -owner, account,
            partition, run->core_seconds, run->unused_core_seconds, run->gpu_seconds,
            run->unused_gpu_seconds, nodes, findings);
  if (run->programs.empty()) {
    into.bind(nullptr);
  } else {
    into.bind(join_lines(lines_of(run->programs)));
  }
}

JobRun read_figures(const sqlite::Statement& from, int first) {
  const auto unused = [&](RunColumn column) {
    return from.is_null(first + column) ? std::nullopt : std::optional(from.number(first + column));
  };
  JobRun run;
  run.ended_at = {from.integer(first + kRunEnded) * kSecond};
  run.core_seconds = from.number(first + kRunCoreSeconds);
  run.unused_core_seconds = unused(kRunUnusedCoreSeconds);
  run.gpu_seconds = from.number(first + kRunGpuSeconds);
  run.unused_gpu_seconds = unused(kRunUnusedGpuSeconds);
  return run;
}

std::optional<JobRun> read_run(const sqlite::Statement& from, int first, NameReader& names) {
  if (from.is_null(first)) return std::nullopt;
  JobRun run = read_figures(from, first);
  const auto name = [&](RunColumn column, std::optional<std::string>& into) {
    if (!from.is_null(first + column)) into = names.text(from.integer(first + column));
  };
  const auto list = [&](RunColumn column, std::vector<std::string>& into) {
    if (!from.is_null(first + column)) into = names.items(from.integer(first + column));
  };
  const std::int64_t owner = from.integer(first + kRunOwner);
  run.verified = owner > 0;
  std::string_view uid = names.text(owner > 0 ? owner : -owner);
  run.cluster = take_until(uid, '\n');
  if (!uid.empty()) run.uid = uid;
  name(kRunUser, run.user);
  name(kRunAccount, run.account);
  name(kRunPartition, run.partition);
  list(kRunNodes, run.nodes);
  list(kRunFindings, run.findings);
  run.programs = programs_of(from.text(first + kRunPrograms));
  return run;
}

JobRun as_stored(JobRun run) {
  run.modules.clear();
  for (auto* list : {&run.nodes, &run.findings}) {
    if (!list->empty()) *list = split_lines(join_lines(*list));
  }
  run.programs = programs_of(join_lines(lines_of(run.programs)));
  return run;
}

}  // namespace scriptorium::catalog

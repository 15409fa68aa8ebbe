#include "backends/catalog/runs.h"

#include <algorithm>
#include <utility>

#include "backends/catalog/rows.h"
#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::catalog {
namespace {

// "9812 python3"
std::vector<std::string> lines_of(const std::vector<JobRun::Program>& programs) {
  std::vector<std::string> lines;
  lines.reserve(programs.size());
  for (const JobRun::Program& program : programs)
    lines.push_back(std::to_string(program.share) + ' ' + program.name);
  return lines;
}

std::vector<JobRun::Program> programs_of(std::string_view text) {
  std::vector<JobRun::Program> programs;
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const auto share = parse_number<std::uint32_t>(take_until(line, ' '));
    programs.push_back({std::string(line), share.value_or(0)});
  }
  return programs;
}

std::optional<std::int64_t> list_id(NameWriter& names, std::int64_t field, QueryField item_field,
                                    const std::vector<std::string>& items) {
  if (items.empty()) return std::nullopt;
  return names.list_id(field, item_field, items);
}

std::vector<std::string> list_at(const sqlite::Statement& from, int column, NameReader& names) {
  if (from.is_null(column)) return {};
  return split_lines(names.text(from.integer(column)));
}

std::int64_t seconds_of(Timestamp time) { return time.nanoseconds / kSecond; }

// The runs of one segment that ended in [from, until), both in seconds.
class SegmentRuns {
 public:
  SegmentRuns(SearchReader& reader, const Searchable::RunRequest& request)
      : db_(reader.db()),
        request_(request),
        names_(db_),
        select_(db_,
                std::string("SELECT ") + kRunColumns +
                    (request.modules ? ", (SELECT modules FROM jobs WHERE id = later.job)" : "") +
                    " FROM later WHERE ended >= ? AND ended < ?") {}

  // A day at a time, so that the -wal of a daemon that writes can be used again in between.
  void read(const std::function<void(const JobRun&)>& use) {
    const auto oldest = db_.integer("SELECT min(ended) FROM later");
    const auto newest = db_.integer("SELECT max(ended) FROM later");
    if (!oldest || !newest) return;
    const std::int64_t end = std::min(seconds_of(request_.until), *newest + 1);
    for (std::int64_t day = std::max(seconds_of(request_.from), *oldest); day < end; day += kDay) {
      if (request_.stop.stop_requested() || !db_.ok()) return;
      read_day(day, std::min(day + kDay, end), use);
    }
  }

 private:
  void read_day(std::int64_t begin, std::int64_t end,
                const std::function<void(const JobRun&)>& use) {
    constexpr int kModules = 12;
    select_.bind(begin, end);
    while (select_.step()) {
      auto run = read_run(select_, 0, names_);
      if (!run || !is_visible(*run, request_.visibility)) continue;
      if (request_.modules) run->modules = list_at(select_, kModules, names_);
      use(*run);
    }
    select_.reset();
  }

  sqlite::Connection& db_;
  const Searchable::RunRequest& request_;
  NameReader names_;
  sqlite::Statement select_;
};

}  // namespace

void bind_run(sqlite::Statement& into, const std::optional<JobRun>& run, NameWriter& names) {
  if (!run) {
    for (int column = 0; column < 12; ++column) into.bind(nullptr);
    return;
  }
  const auto user = names.id(name_field(QueryField::kUser), run->user);
  const auto account = names.id(name_field(QueryField::kAccount), run->account);
  const auto partition = names.id(name_field(QueryField::kPartition), run->partition);
  const auto nodes = list_id(names, kNameOfNodes, QueryField::kNode, run->nodes);
  const auto findings = list_id(names, kNameOfFindings, QueryField::kFinding, run->findings);
  into.bind(seconds_of(run->ended_at), user, run->verified, account, partition, run->core_seconds,
            run->unused_core_seconds, run->gpu_seconds, run->unused_gpu_seconds, nodes, findings);
  if (run->programs.empty()) {
    into.bind(nullptr);
  } else {
    into.bind(join_lines(lines_of(run->programs)));
  }
}

std::optional<JobRun> read_run(const sqlite::Statement& from, int first, NameReader& names) {
  if (from.is_null(first)) return std::nullopt;
  JobRun run;
  int column = first;
  const auto name = [&](std::optional<std::string>& into) {
    if (!from.is_null(column)) into = std::string(names.text(from.integer(column)));
    ++column;
  };
  const auto part = [&](std::optional<std::uint64_t>& into) {
    if (!from.is_null(column)) into = from.number(column);
    ++column;
  };
  run.ended_at = Timestamp{from.integer(column++) * kSecond};
  name(run.user);
  run.verified = from.integer(column++) != 0;
  name(run.account);
  name(run.partition);
  run.core_seconds = from.number(column++);
  part(run.unused_core_seconds);
  run.gpu_seconds = from.number(column++);
  part(run.unused_gpu_seconds);
  run.nodes = list_at(from, column++, names);
  run.findings = list_at(from, column++, names);
  run.programs = programs_of(from.text(column));
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

Result<std::vector<std::string>> read_runs(ReaderPool& pool, const Searchable::RunRequest& request,
                                           const std::function<void(const JobRun&)>& use) {
  const auto segments = pool.segments();
  if (!segments) return segments.error();
  std::vector<std::string> problems;
  for (const SegmentInfo& info : *segments) {
    auto lent = pool.lend(info.id);
    if (!lent) {
      // It may have been removed a moment ago.
      if (lent.error().kind() != ErrorKind::kVanished)
        problems.push_back(segment_name(info.id) + ": " + lent.error().message());
      continue;
    }
    // What leaves it is found in other segments from now on.
    if (is_leaving(info.state)) {
      problems.push_back(segment_name(info.id) + ": is being rewritten");
      continue;
    }
    SearchReader& reader = **lent;
    SegmentRuns(reader, request).read(use);
    if (auto error = reader.db().take_error()) {
      if (error->kind() != ErrorKind::kCorrupt) return *std::move(error);
      problems.push_back(segment_name(info.id) + ": " + error->message());
    }
  }
  return problems;
}

}  // namespace scriptorium::catalog

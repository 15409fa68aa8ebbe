#include "backends/catalog/row_sums.h"

#include <algorithm>

#include "backends/catalog/rows.h"
#include "backends/catalog/schema.h"
#include "backends/catalog/sums.h"

namespace scriptorium::catalog {

void RowSums::add_to(Group& group, const sqlite::Statement& row, const RunSum& part,
                     Change change) {
  const bool is_removed = change == Change::kRemove;
  if (is_removed) {
    group.sum -= part;
  } else {
    group.sum += part;
  }
  if (!row.is_null(kRunFindings))
    group.findings[row.integer(kRunFindings)] += is_removed ? ~std::uint64_t{0} : 1;
}

void RowSums::add_in_time(const sqlite::Statement& row) {
  const JobRun run = read_figures(row, 0);
  RunSum whole;
  whole.add(run);
  add_to(in_time_[{unit_of(row.integer(kRunEnded), kQuarter), is_measured(run)}], row, whole,
         Change::kAdd);
}

void RowSums::add_by_name(const sqlite::Statement& row, Change change) {
  JobRun run = read_figures(row, 0);
  if (!by_ || !is_measured(run)) return;
  const auto add_whole = [&](int column, bool is_verified = true) {
    RunSum whole;
    whole.add(run);
    add_to(by_id_[{row.integer(column), is_verified}], row, whole, change);
  };
  switch (*by_) {
    case RunsBy::kUser: return add_whole(kRunUser, row.integer(kRunOwner) > 0);
    case RunsBy::kAccount: return add_whole(kRunAccount);
    case RunsBy::kPartition: return add_whole(kRunPartition);
    case RunsBy::kModule: return add_whole(kRunColumnCount);
    case RunsBy::kProgram: run.programs = programs_of(row.text(kRunPrograms)); break;
    case RunsBy::kNode:
      if (!row.is_null(kRunNodes)) run.nodes = names_.items(row.integer(kRunNodes));
      break;
  }
  for_each_share(
      *by_, run,
      [&](const std::string& name, std::uint64_t begin, std::uint64_t end, std::uint64_t of) {
        RunSum part;
        part.add(run, begin, end, of);
        add_to(by_name_[name], row, part, change);
      });
}

RunTotals RowSums::totals_of(const Group& group) {
  RunTotals totals;
  static_cast<RunSum&>(totals) = group.sum;
  for (const auto& [list, runs] : group.findings) {
    for (const std::string& finding : names_.items(list)) totals.findings[finding] += runs;
  }
  return totals;
}

void RowSums::give(Timestamp from, const std::function<void(const RunSumRow&)>& use) {
  for (const auto& [key, group] : in_time_) {
    const RunTotals totals = totals_of(group);
    use({.name = std::nullopt,
         .time = std::max(from, Timestamp{key.first * kQuarter * kSecond}),
         .is_measured = key.second,
         .sum = totals});
  }
  for (const auto& [key, group] : by_id_) {
    const auto& [id, is_verified] = key;
    const RunTotals totals = totals_of(group);
    JobRun named;
    named.verified = is_verified;
    if (id != 0) {
      named.user = named.account = named.partition = names_.text(id);
      if (by_ == RunsBy::kModule) named.modules = names_.items(id);
    }
    for_each_share(*by_, named, [&](const std::string& name, auto...) {
      use({.name = name, .time = from, .sum = totals});
    });
  }
  for (const auto& [name, group] : by_name_)
    use({.name = name, .time = from, .sum = totals_of(group)});
  in_time_.clear();
  by_id_.clear();
  by_name_.clear();
}

}  // namespace scriptorium::catalog

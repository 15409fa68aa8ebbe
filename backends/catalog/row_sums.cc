#include "backends/catalog/row_sums.h"

#include <algorithm>

#include "backends/catalog/rows.h"
#include "backends/catalog/schema.h"

namespace scriptorium::catalog {

void RowSums::add_to(StoredSum& sum, const sqlite::Statement& row, const RunSum& part,
                     Change change) {
  const bool is_removed = change == Change::kRemove;
  if (is_removed) {
    sum.sum -= part;
  } else {
    sum.sum += part;
  }
  if (!row.is_null(kRunFindings))
    sum.findings[row.integer(kRunFindings)] += is_removed ? ~std::uint64_t{0} : 1;
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

void RowSums::give(Timestamp from, const std::function<void(const RunSumRow&)>& use) {
  for (const auto& [key, sum] : in_time_) {
    const RunTotals totals = totals_of(sum, names_);
    use({.name = std::nullopt,
         .time = std::max(from, Timestamp{key.first * kQuarter * kSecond}),
         .is_measured = key.second,
         .sum = totals});
  }
  for (const auto& [key, sum] : by_id_) {
    const auto& [id, is_verified] = key;
    const RunTotals totals = totals_of(sum, names_);
    JobRun named;
    named.verified = is_verified;
    if (id != 0 && by_ == RunsBy::kModule) named.modules = names_.items(id);
    if (id != 0 && by_ != RunsBy::kModule)
      named.user = named.account = named.partition = names_.text(id);
    for_each_share(*by_, named, [&](const std::string& name, auto...) {
      use({.name = name, .time = from, .sum = totals});
    });
  }
  for (const auto& [name, sum] : by_name_)
    use({.name = name, .time = from, .sum = totals_of(sum, names_)});
  in_time_.clear();
  by_id_.clear();
  by_name_.clear();
}

}  // namespace scriptorium::catalog

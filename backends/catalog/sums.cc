#include "backends/catalog/sums.h"

#include <algorithm>

#include "backends/catalog/block.h"
#include "backends/catalog/rows.h"

namespace scriptorium::catalog {
namespace {

constexpr std::size_t kMostRememberedDays = 1'000;

std::int64_t seconds_of(const JobRun& run) { return run.ended_at.nanoseconds / kSecond; }

}  // namespace

std::string pack_sum(const StoredSum& sum) {
  std::string packed;
  for (const std::uint64_t figure :
       {sum.sum.jobs, sum.sum.core_seconds, sum.sum.unused_core_seconds, sum.sum.gpu_seconds,
        sum.sum.unused_gpu_seconds})
    put_number(packed, figure);
  for (const auto& [finding, jobs] : sum.findings) {
    put_number(packed, static_cast<std::uint64_t>(finding));
    put_number(packed, jobs);
  }
  return packed;
}

std::optional<StoredSum> unpack_sum(std::string_view packed) {
  StoredSum sum;
  std::size_t at = 0;
  for (std::uint64_t* figure : {&sum.sum.jobs, &sum.sum.core_seconds, &sum.sum.unused_core_seconds,
                                &sum.sum.gpu_seconds, &sum.sum.unused_gpu_seconds}) {
    const auto number = take_number(packed, at);
    if (!number) return std::nullopt;
    *figure = *number;
  }
  while (at < packed.size()) {
    const auto finding = take_number(packed, at);
    const auto jobs = take_number(packed, at);
    if (!finding || !jobs) return std::nullopt;
    sum.findings.emplace_hint(sum.findings.end(), static_cast<std::int64_t>(*finding), *jobs);
  }
  return sum;
}

RunTotals totals_of(const StoredSum& stored, NameReader& names) {
  RunTotals totals;
  static_cast<RunSum&>(totals) = stored.sum;
  for (const auto& [id, jobs] : stored.findings) {
    for (const std::string& finding : names.items(id)) totals.findings[finding] += jobs;
  }
  return totals;
}

JobRun as_summed(const JobRun& run, const std::vector<std::string>& modules) {
  JobRun summed = as_stored(run);
  if (!modules.empty()) summed.modules = split_lines(join_lines(modules));
  return summed;
}

SumWriter::SumWriter(sqlite::Connection& db, NameWriter& names)
    : names_(names),
      select_(db, "SELECT data FROM sums WHERE kind = ? AND time = ? AND name = ?"),
      replace_(db, "INSERT OR REPLACE INTO sums(kind, time, name, data) VALUES(?, ?, ?, ?)"),
      remove_(db, "DELETE FROM sums WHERE kind = ? AND time = ? AND name = ?"),
      least_(db, kSelectLeastWasteful),
      insert_wasteful_(db,
                       "INSERT OR IGNORE INTO wasteful(day, waste, job, event) VALUES(?, ?, ?, ?)"),
      cut_wasteful_(db, "DELETE FROM wasteful WHERE day = ? AND waste < ?") {}

void SumWriter::add_to(const Key& key, const JobRun& run, std::uint64_t begin, std::uint64_t end,
                       std::uint64_t of, bool is_removed) {
  RunSum part;
  part.add(run, begin, end, of);
  StoredSum& change = changes_[key];
  if (is_removed) {
    change.sum -= part;
  } else {
    change.sum += part;
  }
  if (run.findings.empty()) return;
  for (const std::int64_t finding : names_.item_ids(QueryField::kFinding, run.findings))
    change.findings[finding] += is_removed ? ~std::uint64_t{0} : 1;
}

void SumWriter::add_names(RunsBy by, const JobRun& run, bool is_removed) {
  const std::int64_t day = unit_of(seconds_of(run), kDay);
  for_each_share(
      by, run,
      [&](const std::string& name, std::uint64_t begin, std::uint64_t end, std::uint64_t of) {
        add_to({static_cast<std::int64_t>(by), day, names_.id(kNameOfSums, std::string_view(name))},
               run, begin, end, of, is_removed);
      });
}

void SumWriter::add(std::int64_t job, std::string_view key, const JobRun& run,
                    const std::vector<std::string>& modules) {
  const JobRun summed = as_summed(run, modules);
  const bool measured = is_measured(summed);
  add_to({kQuarters, unit_of(seconds_of(summed), kQuarter), measured ? 1 : 0}, summed, 0, 1, 1);
  if (!measured) return;
  for (std::uint8_t by = 0; by < kRunsByCount; ++by) add_names(static_cast<RunsBy>(by), summed);
  if (const std::uint64_t waste = wasted_core_seconds(summed); waste > 0)
    wasteful_[unit_of(seconds_of(summed), kDay)].push_back({waste, job, std::string(key)});
}

void SumWriter::change_modules(const JobRun& run, const std::vector<std::string>& before,
                               const std::vector<std::string>& after) {
  if (!is_measured(run)) return;
  add_names(RunsBy::kModule, as_summed(run, before), true);
  add_names(RunsBy::kModule, as_summed(run, after));
}

void SumWriter::write_sum(const Key& key, const StoredSum& change) {
  const auto& [kind, time, name] = key;
  StoredSum sum;
  if (select_.bind(kind, time, name).step()) {
    auto known = unpack_sum(select_.text(0));
    select_.reset();
    if (!known) return;  // damaged, which `catalog check` finds
    sum = *std::move(known);
  }
  sum.sum += change.sum;
  for (const auto& [finding, jobs] : change.findings) sum.findings[finding] += jobs;
  std::erase_if(sum.findings, [](const auto& finding) { return finding.second == 0; });
  if (sum.sum.jobs == 0) {
    remove_.run(kind, time, name);
  } else {
    replace_.run(kind, time, name, sqlite::Blob{pack_sum(sum)});
  }
}

std::uint64_t SumWriter::least_of(std::int64_t day) {
  if (const auto known = least_waste_.find(day); known != least_waste_.end()) return known->second;
  if (least_waste_.size() >= kMostRememberedDays) least_waste_.clear();
  const auto least = least_.first(day, kWastefulOfDay - 1);
  return least_waste_[day] = static_cast<std::uint64_t>(least.value_or(0));
}

void SumWriter::write_wasteful(std::int64_t day, std::vector<Wasteful>& runs) {
  const std::uint64_t least = least_of(day);
  std::erase_if(runs, [&](const Wasteful& run) { return run.waste <= least; });
  if (runs.empty()) return;
  std::ranges::sort(runs, std::greater{}, &Wasteful::waste);
  if (runs.size() > kWastefulOfDay) runs.resize(kWastefulOfDay);
  for (const Wasteful& run : runs)
    insert_wasteful_.run(day, run.waste, run.job, sqlite::Blob{run.key});
  least_waste_.erase(day);
  cut_wasteful_.run(day, least_of(day));
}

void SumWriter::flush() {
  for (const auto& [key, change] : changes_) write_sum(key, change);
  for (auto& [day, runs] : wasteful_) write_wasteful(day, runs);
  changes_.clear();
  wasteful_.clear();
}

void SumWriter::forget() {
  changes_.clear();
  wasteful_.clear();
  least_waste_.clear();
}

}  // namespace scriptorium::catalog

#include "backends/catalog/ingest_fields.h"

#include <algorithm>

#include "backends/catalog/block.h"
#include "backends/catalog/field_lists.h"

namespace scriptorium::catalog {

FieldWriter::FieldWriter(sqlite::Connection& db, NameWriter& names)
    : names_(names),
      select_field_(db, "SELECT list FROM fields WHERE id = ?"),
      replace_field_(db, "INSERT OR REPLACE INTO fields VALUES(?, ?)"),
      extend_chunk_(db,
                    "INSERT INTO chunks VALUES(?, ?, ?) ON CONFLICT(id) DO UPDATE SET "
                    "newest = max(newest, excluded.newest), oldest = min(oldest, excluded.oldest)"),
      add_daily_(db,
                 "INSERT INTO daily VALUES(?, ?, ?, ?, ?, ?, ?) "
                 "ON CONFLICT(day, cluster, user, account, partition, verified) "
                 "DO UPDATE SET jobs = jobs + excluded.jobs") {}

void FieldWriter::add_value(std::int64_t field, std::int64_t value, std::int64_t chunk) {
  // Names and families have small numbers; of anything else nothing is remembered.
  constexpr std::int64_t kMostRemembered = std::int64_t{1} << 48;
  if (chunk == newest_chunk_ && value >= 0 && value < kMostRemembered &&
      !in_newest_.insert((static_cast<std::uint64_t>(field) << 48) |
                         static_cast<std::uint64_t>(value)))
    return;
  fields_[field_key(field, chunk)].push_back(value);
}

void FieldWriter::add_name(QueryField field, const std::optional<std::string>& text,
                           std::int64_t chunk) {
  if (const auto id = names_.id(name_field(field), text)) add_value(name_field(field), *id, chunk);
}

void FieldWriter::add_names(QueryField field, const std::vector<std::string>& texts,
                            std::int64_t chunk) {
  if (texts.empty()) return;
  for (const std::int64_t name : names_.item_ids(field, texts))
    add_value(name_field(field), name, chunk);
}

void FieldWriter::add_account(std::int64_t owner, const JobRow& row) {
  const auto account = names_.id(name_field(QueryField::kAccount), row.account);
  if (account && accounts_.insert(static_cast<std::uint64_t>(owner << 32 | *account)))
    fields_[field_key(kAccountsOfOwner, owner)].push_back(*account);
}

void FieldWriter::add(std::int64_t job, std::int64_t owner, const JobRow& row) {
  const std::int64_t chunk = job / kChunkJobs;
  if (chunk > newest_chunk_) {
    newest_chunk_ = chunk;
    in_newest_.clear();
  }
  add_name(QueryField::kCluster, row.cluster, chunk);
  add_name(QueryField::kScheduler, row.scheduler, chunk);
  add_name(QueryField::kUser, row.user, chunk);
  if (const auto uid = names_.id(kNameOfUid, row.uid)) add_value(kNameOfUid, *uid, chunk);
  add_name(QueryField::kAccount, row.account, chunk);
  add_account(owner, row);
  add_name(QueryField::kPartition, row.partition, chunk);
  add_name(QueryField::kQos, row.qos, chunk);
  add_name(QueryField::kName, row.name, chunk);
  add_name(QueryField::kWorkDir, row.work_dir, chunk);
  add_name(QueryField::kInterpreter, row.interpreter, chunk);
  add_name(QueryField::kState, row.state, chunk);
  add_names(QueryField::kModule, row.modules, chunk);
  add_names(QueryField::kDirective, row.directives, chunk);
  add_names(QueryField::kSoftware, row.software, chunk);
  add_names(QueryField::kNode, row.nodes, chunk);
  add_names(QueryField::kFinding, row.findings, chunk);
  if (row.redacted) add_name(QueryField::kFinding, "secret", chunk);
  if (row.exit_code) add_value(name_field(QueryField::kExit), *row.exit_code, chunk);
  if (row.family) {
    add_value(name_field(QueryField::kFamily), static_cast<std::int64_t>(*row.family), chunk);
  }
  if (row.array_job_id) {
    add_name(QueryField::kArray, row.array_job_id, chunk);
  } else {
    add_value(name_field(QueryField::kArray), 0, chunk);
  }
  add_value(name_field(QueryField::kComplete), row.complete ? 1 : 0, chunk);
  add_value(name_field(QueryField::kVerified), row.verified ? 1 : 0, chunk);

  const auto [times, is_new] =
      chunks_.try_emplace(chunk, Times{row.time.nanoseconds, row.time.nanoseconds});
  if (!is_new) {
    times->second.newest = std::max(times->second.newest, row.time.nanoseconds);
    times->second.oldest = std::min(times->second.oldest, row.time.nanoseconds);
  }
}

void FieldWriter::count(const JobRow& row, std::int64_t jobs) {
  if (!is_job(row)) return;
  const auto name = [&](QueryField field, const std::optional<std::string>& text) {
    return names_.id(name_field(field), text).value_or(0);
  };
  const std::int64_t day = unit_of(row.time.nanoseconds, kDay * kSecond);
  daily_[{day, name(QueryField::kCluster, row.cluster), name(QueryField::kUser, row.user),
          name(QueryField::kAccount, row.account), name(QueryField::kPartition, row.partition),
          row.verified ? 1 : 0}] += jobs;
}

// A damaged list stays as it is: a search takes it for one that may have any value.
void FieldWriter::write_field(std::int64_t key, std::vector<std::int64_t>& values) {
  std::size_t before = 0;
  if (select_field_.bind(key).step()) {
    const auto known = unpack_values(select_field_.text(0));
    select_field_.reset();
    if (!known) return;
    before = known->size();
    values.insert(values.end(), known->begin(), known->end());
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() == before) return;
  const std::string list = pack_ids(values);
  replace_field_.run(key, sqlite::Large{list});
}

void FieldWriter::flush() {
  for (auto& [key, values] : fields_) write_field(key, values);
  for (const auto& [chunk, times] : chunks_) extend_chunk_.run(chunk, times.newest, times.oldest);
  for (const auto& [key, jobs] : daily_) {
    if (jobs == 0) continue;
    const auto& [day, cluster, user, account, partition, verified] = key;
    add_daily_.run(day, cluster, user, account, partition, verified, jobs);
  }
  fields_.clear();
  chunks_.clear();
  daily_.clear();
}

void FieldWriter::forget() {
  fields_.clear();
  chunks_.clear();
  daily_.clear();
  newest_chunk_ = -1;
  in_newest_.clear();
  accounts_.clear();
}

}  // namespace scriptorium::catalog

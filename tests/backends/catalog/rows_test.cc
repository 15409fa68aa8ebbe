#include "backends/catalog/rows.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "backends/catalog/lock.h"
#include "backends/catalog/segments.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::catalog {
namespace {

const std::string kEventId(64, 'a');

JobRow full_row() {
  JobRow row;
  row.cluster = "lab";
  row.scheduler = "slurm";
  row.id = "4711";
  row.time = {1'795'224'382'364'000'001};
  row.event_id = kEventId;
  row.name = "md 1";
  row.array_job_id = "4700";
  row.array_task_spec = "0-99%10";
  row.het_job_id = "4699";
  row.user = "alice";
  row.uid = "1001";
  row.group = "chem";
  row.verified = true;
  row.account = "Chem";
  row.partition = "batch";
  row.qos = "normal";
  row.work_dir = "/home/alice/md";
  row.interpreter = "/bin/bash";
  row.directives = {"--time=00:10:00", "--gres=gpu:1"};
  row.modules = {"GROMACS/2023.1", ""};
  row.software = {"conda torch", "apptainer docker://a b"};
  row.script_size = 3;
  row.environment_size = 0;
  row.complete = false;
  row.redacted = true;
  row.family = 17;
  row.state = "FAILED";
  row.exit_code = 0;
  row.exit_signal = 9;
  row.started_at = Timestamp{1};
  row.ended_at = Timestamp{1'795'224'999'000'000'000};
  row.elapsed_seconds = 616.25;
  row.cpu_seconds = 1e9;
  row.cpus = 16;
  row.cpu_ratio = 0.3;
  row.memory_peak_bytes = std::uint64_t{1} << 40;
  row.memory_limit_bytes = 0;
  row.gpus = 1;
  row.gpu_ratio = 0.0;
  row.time_limit_seconds = 600;
  row.nodes = {"n1", "n2"};
  row.findings = {"cpu_low"};
  row.lives = 2;
  row.account_named_at = Timestamp{1'795'224'999'000'000'000};
  return row;
}

bool same(const JobRow& a, const JobRow& b) {
  return a.cluster == b.cluster && a.scheduler == b.scheduler && a.id == b.id && a.time == b.time &&
         a.event_id == b.event_id && a.name == b.name && a.array_job_id == b.array_job_id &&
         a.array_task_spec == b.array_task_spec && a.het_job_id == b.het_job_id &&
         a.user == b.user && a.uid == b.uid && a.group == b.group && a.verified == b.verified &&
         a.account == b.account && a.partition == b.partition && a.qos == b.qos &&
         a.work_dir == b.work_dir && a.interpreter == b.interpreter &&
         a.directives == b.directives && a.modules == b.modules && a.software == b.software &&
         a.account_named_at == b.account_named_at && a.script_sha256 == b.script_sha256 &&
         a.script_size == b.script_size && a.environment_size == b.environment_size &&
         a.complete == b.complete && a.redacted == b.redacted && a.family == b.family &&
         a.state == b.state && a.exit_code == b.exit_code && a.exit_signal == b.exit_signal &&
         a.started_at == b.started_at && a.ended_at == b.ended_at &&
         a.elapsed_seconds == b.elapsed_seconds && a.cpu_seconds == b.cpu_seconds &&
         a.cpus == b.cpus && a.cpu_ratio == b.cpu_ratio &&
         a.memory_peak_bytes == b.memory_peak_bytes &&
         a.memory_limit_bytes == b.memory_limit_bytes && a.gpus == b.gpus &&
         a.gpu_ratio == b.gpu_ratio && a.time_limit_seconds == b.time_limit_seconds &&
         a.nodes == b.nodes && a.findings == b.findings && a.lives == b.lives;
}

class RowsTest : public ::testing::Test {
 protected:
  RowsTest() {
    EXPECT_TRUE(make_root(root_, std::nullopt));
    auto catalog = open_catalog_writer(root_);
    EXPECT_TRUE(catalog);
    EXPECT_TRUE(add_segment(root_, **catalog, 1, {0}));
    auto db = open_segment_writer(root_, 1);
    EXPECT_TRUE(db);
    db_ = *std::move(db);
    names_.emplace(*db_);
    writer_.emplace(*db_, *names_);
  }

  JobRow stored(const JobRow& row) {
    JobEntry entry;
    entry.owner = 1;
    entry.row = row;
    const std::int64_t id = writer_->insert(entry);
    RowReader reader(*db_);
    auto read = reader.read(id);
    EXPECT_TRUE(read && *read);
    return read && *read ? **read : JobRow{};
  }

  test::TempDir directory_;
  const std::string root_ = directory_.path_to("catalog");
  ConnectionPtr db_;
  std::optional<NameWriter> names_;
  std::optional<RowWriter> writer_;
};

TEST_F(RowsTest, EveryMemberOfAJobIsReadAsItWasWritten) {
  EXPECT_TRUE(same(stored(full_row()), full_row()));
}

TEST_F(RowsTest, WhatIsUnknownStaysUnknown) {
  JobRow row;
  row.cluster = "lab";
  row.scheduler = "slurm";
  row.id = "1";
  EXPECT_TRUE(same(stored(row), row));
}

TEST_F(RowsTest, IdsOfAnyFormComeBackAsTheyWere) {
  for (const char* id : {"0", "007", "10_3", "10+1", "-5", "9223372036854775807",
                         "9223372036854775808", "1e3", "", " 4711", "4711.server"}) {
    JobRow row;
    row.id = id;
    EXPECT_EQ(stored(row).id, id);
    RowReader reader(*db_);
    const auto jobs = reader.jobs_with_id(id);
    ASSERT_TRUE(jobs);
    EXPECT_EQ(jobs->size(), 1U) << id;
  }
}

TEST_F(RowsTest, NamesThatDifferInCaseOrAfterANulAreDifferent) {
  using namespace std::string_literals;
  for (const std::string& name : {"md"s, "MD"s, "Md\0a"s, "Md\0b"s, ""s}) {
    JobRow row;
    row.name = name;
    EXPECT_EQ(stored(row).name, name);
  }
}

TEST_F(RowsTest, ANameIsStoredOnceForAllJobs) {
  for (int i = 0; i < 5; ++i) stored(full_row());
  names_->forget();
  stored(full_row());
  EXPECT_EQ(
      db_->number("SELECT count(*) FROM names WHERE field = ?", name_field(QueryField::kUser)), 1U);
}

TEST_F(RowsTest, AnUpdateChangesRowAndOutcome) {
  JobEntry entry;
  entry.row.id = "1";
  entry.id = writer_->insert(entry);
  entry.row = full_row();
  entry.owner = 3;
  entry.record = 12;
  writer_->update(entry);
  RowReader reader(*db_);
  const auto read = reader.read_entry(entry.id);
  ASSERT_TRUE(read && *read);
  EXPECT_TRUE(same((*read)->row, full_row()));
  EXPECT_EQ((*read)->owner, 3);
  EXPECT_EQ((*read)->record, 12);
}

TEST_F(RowsTest, ARangeGivesItsJobsInOrderUntilItIsTold) {
  for (int i = 1; i <= 10; ++i) stored(full_row());
  RowReader reader(*db_);
  std::vector<std::int64_t> ids;
  ASSERT_TRUE(reader.read_range(3, 9, [&](JobEntry&& entry) {
    EXPECT_TRUE(same(entry.row, full_row()));
    ids.push_back(entry.id);
    return entry.id < 7;
  }));
  EXPECT_EQ(ids, (std::vector<std::int64_t>{3, 4, 5, 6, 7}));
}

TEST_F(RowsTest, OneWriterWaitsForTheOther) {
  auto first = WriterLock::take(root_);
  ASSERT_TRUE(first);
  const auto second = WriterLock::take(root_, std::chrono::milliseconds(1));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind(), ErrorKind::kTransient);
  {
    const WriterLock released = *std::move(first);
  }
  EXPECT_TRUE(WriterLock::take(root_, std::chrono::milliseconds(1)));
}

}  // namespace
}  // namespace scriptorium::catalog

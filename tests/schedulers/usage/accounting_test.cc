#include "schedulers/usage/accounting.h"
#include "core/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "schedulers/usage/job_events.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::usage {
namespace {

using namespace std::literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

// What sacct of Slurm 22.05 with jobacct_gather/linux printed, X standing for the guard: a job of 2
// CPUs of which one was busy, with a newline in its name; one on two nodes; one cancelled while it
// waited; an array of which a task was requeued. NTasks and NodeList were added as it prints them.
constexpr std::string_view kRecorded =
    R"sacct(1X1X0X0XrootXrootXrootXmainXnormalX2026-11-21T20:17:53X2026-11-21T20:17:56X2026-11-21T20:18:00X4X00:00:00X5XFAILEDX3:0X1X2Xbilling=2,cpu=2,mem=200M,node=1X00:02.992X00:02.907X00:00.084XXXXn1X/home/aliceXa b|c
zzX
1.batchX1.batchXXXXXrootXXX2026-11-21T20:17:56X2026-11-21T20:17:56X2026-11-21T20:18:00X4X00:00:00XXFAILEDX3:0X1X2Xcpu=2,mem=200M,node=1X00:02.992X00:02.907X00:00.084X76853248Xcpu=00:00:02,energy=0,fs/disk=1693949,mem=76853248,pages=0,vmem=81428480X1Xn1XXbatchX
2X2X0X0XrootXrootXrootXmainXnormalX2026-11-21T20:17:53X2026-11-21T20:17:56X2026-11-21T20:18:00X4X00:00:00XUNLIMITEDXCOMPLETEDX0:0X2X4Xbilling=4,cpu=4,mem=400M,node=2X00:00.017X00:00.014X00:00.003XXXXn[1-2]X/home/aliceXwrapX
2.batchX2.batchXXXXXrootXXX2026-11-21T20:17:56X2026-11-21T20:17:56X2026-11-21T20:18:00X4X00:00:00XXCOMPLETEDX0:0X1X2Xcpu=2,mem=200M,node=1X00:00.011X00:00.009X00:00.001X10833920Xcpu=00:00:00,energy=0,fs/disk=29417,mem=10833920,pages=0,vmem=292888576X1Xn1XXbatchX
2.0X2.0XXXXXrootXXX2026-11-21T20:17:56X2026-11-21T20:17:56X2026-11-21T20:18:00X4X00:00:00XXCOMPLETEDX0:0X2X4Xcpu=4,mem=400M,node=2X00:00.006X00:00.005X00:00.001X1708032Xcpu=00:00:00,energy=0,fs/disk=27908,mem=6754304,pages=0,vmem=11960320X4Xn[1-2]XXsleepX
4X4X0X0XrootXrootXrootXmainXnormalX2026-11-21T20:17:53X2026-11-21T20:17:54X2026-11-21T20:17:54X0X00:00:00XPartition_LimitXCANCELLED by 0X0:0X1X1XX00:00:00X00:00:00X00:00:00XXXXNone assignedX/home/aliceXwrapX
6X3_0X0X0XrootXrootXrootXmainXnormalX2026-11-21T20:17:53X2026-11-21T20:17:56X2026-11-21T20:18:02X6X00:00:00XUNLIMITEDXREQUEUEDX0:0X1X1Xbilling=1,cpu=1,mem=50M,node=1X00:00.002X00:00:00X00:00.001XXXXn1X/home/aliceXwrapX
6.batchX3_0.batchXXXXXrootXXX2026-11-21T20:17:56X2026-11-21T20:17:56X2026-11-21T20:17:58X2X00:00:00XXCOMPLETEDX0:0X1X1Xcpu=1,mem=50M,node=1X00:00.002X00:00:00X00:00.001X3149824Xcpu=00:00:00,energy=0,fs/disk=11083,mem=3149824,pages=0,vmem=5644288X1Xn1XXbatchX
3X3_1X0X0XrootXrootXrootXmainXnormalX2026-11-21T20:17:53X2026-11-21T20:17:56X2026-11-21T20:17:58X2X00:00:00XUNLIMITEDXCOMPLETEDX0:0X1X1Xbilling=1,cpu=1,mem=50M,node=1X00:00.002X00:00.002X00:00:00XXXXn1X/home/aliceXwrapX
3.batchX3_1.batchXXXXXrootXXX2026-11-21T20:17:56X2026-11-21T20:17:56X2026-11-21T20:17:58X2X00:00:00XXCOMPLETEDX0:0X1X1Xcpu=1,mem=50M,node=1X00:00.002X00:00.002X00:00:00X3325952Xcpu=00:00:00,energy=0,fs/disk=11083,mem=3325952,pages=0,vmem=5644288X1Xn1XXbatchX
)sacct";

Timestamp at(std::string_view text) { return parse_rfc3339(text).value(); }

TEST(SacctTest, ARecordedAnswerIsRead) {
  const auto jobs = parse_sacct(kRecorded, "X");
  ASSERT_TRUE(jobs) << jobs.error().message();
  std::vector<std::string> ids;
  for (const AccountedJob& job : *jobs) ids.push_back(job.view.facts.job.id);
  EXPECT_THAT(ids, ElementsAre("1", "2", "6", "3")) << "4 never ran";

  const JobView& first = (*jobs)[0].view;
  EXPECT_EQ(first.facts.job.name, "a b|c\nzz");
  EXPECT_EQ(first.facts.state, "FAILED");
  EXPECT_EQ(first.facts.exit_code, "3:0");
  EXPECT_EQ(first.facts.user.name, "root");
  EXPECT_TRUE(first.facts.user.verified);
  EXPECT_EQ(first.facts.request.memory_bytes, 200U << 20U);
  EXPECT_EQ(first.facts.request.time_limit_seconds, 300);
  EXPECT_EQ(first.totals.elapsed_seconds, 4);
  EXPECT_DOUBLE_EQ(*first.totals.cpu_seconds, 2.992);
  EXPECT_NEAR(*first.cpu_ratio(), 2.992 / 8, 1e-9);
  EXPECT_EQ(first.totals.peak_memory_bytes, 76853248U);
  EXPECT_EQ(first.facts.started_at, at("2026-11-21T20:17:56Z"));
  EXPECT_EQ(first.facts.job.submitted_at, at("2026-11-21T20:17:53Z"));

  const JobView& wide = (*jobs)[1].view;
  EXPECT_EQ(wide.nodes_expected, 2U);
  EXPECT_EQ(wide.totals.cpus, 4U);
  EXPECT_EQ(wide.totals.peak_memory_bytes, 10833920U + 6754304U) << "script and step at once";
  EXPECT_EQ(wide.totals.peak_node_bytes, 10833920U + 2U * 1708032U) << "two of four tasks";
  EXPECT_EQ(wide.facts.request.time_limit_seconds, std::nullopt);

  const JobView& task = (*jobs)[2].view;
  EXPECT_EQ(task.facts.state, "REQUEUED");
  EXPECT_EQ(task.facts.job.array->job_id, "3");
  EXPECT_EQ(task.facts.job.array->task_id, "0");
}

TEST(SacctTest, FiguresOfAccountingSayThatTheyAreRougher) {
  const auto jobs = parse_sacct(kRecorded, "X");
  FindingOptions options;
  options.set("min_elapsed_seconds", 1);
  const Event event = job_event("lab", "slurm", (*jobs)[0].view, options);
  EXPECT_EQ(event.capture, "accounting");
  const Json usage = Json::parse(event.extra_json)["usage"];
  EXPECT_EQ(usage["quality"]["status"], "accounting");
  EXPECT_EQ(usage["quality"]["last_read"], "accounting");
  EXPECT_EQ(usage["quality"]["nodes_reporting"], 1);
  EXPECT_EQ(usage["source"], (Json{{"cpu", "accounting"}, {"memory", "accounting"}}));
  EXPECT_FALSE(usage.contains("nodes"));
  std::vector<std::string> ids;
  for (const Json& finding : usage["findings"]) ids.push_back(finding["id"]);
  EXPECT_THAT(ids, ElementsAre("cpu_low", "short_job")) << "it failed, so not mem_over";
}

TEST(SacctTest, WithoutAPluginThatGathersThereAreNoFiguresRatherThanZeros) {
  std::string text(kRecorded.substr(kRecorded.find("\n3X") + 1));
  for (const char* figure :
       {"00:00.002", "3325952",
        "cpu=00:00:00,energy=0,fs/disk=11083,mem=3325952,pages=0,vmem=5644288"}) {
    for (auto place = text.find(figure); place != std::string::npos; place = text.find(figure)) {
      text.replace(place, std::string_view(figure).size(), figure[0] == '0' ? "00:00:00" : "");
    }
  }
  const auto jobs = parse_sacct(text, "X");
  ASSERT_TRUE(jobs) << jobs.error().message();
  ASSERT_THAT(*jobs, SizeIs(1));
  EXPECT_EQ(quality_of(jobs->front().view, {}), QualityStatus::kNone);
  EXPECT_EQ(jobs->front().view.cpu_ratio(), std::nullopt);
}

TEST(SacctTest, AnAnswerThatIsNotAsSlurmWritesItIsRefusedWhole) {
  EXPECT_FALSE(parse_sacct(kRecorded.substr(0, kRecorded.size() - 20), "X"));
  EXPECT_FALSE(parse_sacct("sacct: error\n", "X"));
  EXPECT_TRUE(parse_sacct("", "X")->empty());
}

TEST(SacctTest, TheCursorSurvivesBeingWrittenDown) {
  AccountingCursor cursor{.until = at("2026-11-21T20:17:56Z"),
                          .seen = {"0123456789abcdef", "fedcba9876543210"}};
  const auto back = parse_cursor(cursor.text());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->until, cursor.until);
  EXPECT_EQ(back->seen, cursor.seen);
  for (const char* text :
       {"", "{}", "[]", R"({"version":2,"until":"2026-11-21T20:17:56Z","seen":[]})",
        R"({"version":1,"until":"x","seen":[]})"}) {
    EXPECT_FALSE(parse_cursor(text)) << text;
  }
}

// Takes events as the journal does: with the position, or not at all.
class FakeWriter : public EventWriter {
 public:
  Result<void> write(std::vector<Event> events, std::optional<std::string> position) override {
    if (refuse) return Error{ErrorKind::kExhausted, "journal full and stopping"};
    for (Event& event : events) taken.push_back(std::move(event));
    if (position) position_ = std::move(position);
    return {};
  }
  std::optional<std::string> position() const override { return position_; }

  std::vector<std::string> ids() const {
    std::vector<std::string> result;
    for (const Event& event : taken) result.push_back(event.job.id);
    return result;
  }

  std::vector<Event> taken;
  std::optional<std::string> position_;
  bool refuse = false;
};

// Four nodes of 288 CPUs for 2,102 s, as a site's sacct had it; and one of them for the same time.
std::vector<AccountedJob> with_energy(const std::string& tres = "energy=20543125,",
                                      const std::string& suspended = "00:00:00") {
  std::string rows;
  for (const auto& [id, cpus, nodes, list] :
       {std::tuple("1", "1152", "4", "nid[001002,001004,001012,001014]"),
        std::tuple("2", "144", "1", "nid001002")}) {
    rows += std::string(id) + "X" + id +
            "X0X0XrootXrootXrootXmainXnormalX2024-03-15T20:24:16X2024-03-15T20:24:16X"
            "2024-03-15T20:59:18X2102X" +
            suspended + "XUNLIMITEDXCOMPLETEDX0:0X" + nodes + "X" + cpus +
            "Xbilling=1152,cpu=" + cpus + "," + tres + "mem=1840000M,node=" + nodes +
            "X00:00:00X00:00:00X00:00:00XXXX" + list + "X/home/aliceXmdX\n";
  }
  return parse_sacct(rows, "X").value();
}
NodeSizes sizes_of(std::string rows) {
  rows += "nid001004|288|NO|\nnid001012|288|NO|\nnid001014|288|NO|\n";
  return parse_sinfo(rows, "|").value();
}
std::optional<double> energy_of(std::vector<AccountedJob> jobs, const NodeSizes& sizes) {
  keep_own_energy(jobs, sizes);
  EXPECT_EQ(jobs.at(1).view.totals.nodes_energy_joules, std::nullopt) << "half of a node";
  return jobs.at(0).view.totals.nodes_energy_joules;
}

TEST(SacctTest, EnergyOfNodesIsThatOfAJobThatHadThemAlone) {
  const auto jobs = with_energy();
  EXPECT_EQ(energy_of(jobs, sizes_of("nid001002|288|NO|\nnid001002|288|EXCLUSIVE|\n")), 20543125);
  EXPECT_EQ(energy_of(jobs, sizes_of("nid001002|288|NO|\nnid001002|288|YES:4|\n")), std::nullopt);
  EXPECT_EQ(energy_of(jobs, sizes_of("nid001002|288|FORCE:1|\n")), std::nullopt);
  EXPECT_EQ(energy_of(jobs, sizes_of("nid001002|290|NO|\n")), std::nullopt) << "two CPUs were free";
  EXPECT_EQ(energy_of(jobs, sizes_of("")), std::nullopt) << "a node is not known";
  EXPECT_EQ(energy_of(jobs, {}), std::nullopt);

  const NodeSizes whole = sizes_of("nid001002|288|NO|\n");
  EXPECT_EQ(energy_of(with_energy("energy=20543125,", "00:10:00"), whole), std::nullopt)
      << "others used its nodes while it was suspended";
  EXPECT_EQ(energy_of(with_energy("energy=0,"), whole), std::nullopt) << "nothing gathers it";
  EXPECT_EQ(energy_of(with_energy(""), whole), std::nullopt);
}

TEST(SacctTest, EnergyThatNoNodeCanDrawIsSaidAndNotUsed) {
  auto jobs = with_energy("energy=18446744073709551614,");
  keep_own_energy(jobs, sizes_of("nid001002|288|NO|\n"));
  const Json usage =
      Json::parse(job_event("lab", "slurm", jobs.at(0).view, {}).extra_json)["usage"];
  EXPECT_FALSE(usage.contains("energy"));
  EXPECT_EQ(usage["quality"]["not_credible"][0]["figure"], "energy.nodes_joules");

  jobs = with_energy();
  keep_own_energy(jobs, sizes_of("nid001002|288|NO|\n"));
  const Event event = job_event("lab", "slurm", jobs.at(0).view, {});
  EXPECT_EQ(Json::parse(event.extra_json)["usage"]["energy"], (Json{{"nodes_joules", 20543125}}));
}

TEST(SinfoTest, AnAnswerThatIsNotAsSlurmWritesItIsRefusedWhole) {
  EXPECT_FALSE(parse_sinfo("n1|4|NO|", "|"));
  EXPECT_FALSE(parse_sinfo("n1|4+|NO|\n", "|"));
  EXPECT_FALSE(parse_sinfo("|4|NO|\n", "|"));
  EXPECT_TRUE(parse_sinfo("", "|")->empty());
}

// A sacct of our own, which answers with the jobs that the file `jobs` has for the time that it was
// asked for, as slurmdbd would: one a line, "END ROW", X for the guard.
class AccountingTest : public ::testing::Test {
 protected:
  AccountingTest() {
    config_.accounting = Accounting::kSacct;
    config_.sacct = directory_.path() + "/sacct";
    config_.accounting_overlap_seconds = 600;
    directory_.write("sacct", "#!/bin/bash\nD='" + directory_.path() + R"script('
echo "$*" >>"$D/calls"
[ -e "$D/broken" ] && { echo "sacct: error: Problem talking to the database" >&2; exit 1; }
while [ $# -gt 0 ]; do
  case $1 in
    --delimiter=*) G=${1#*=} ;;
    --starttime) S=$2 ;;
    --endtime) E=$2 ;;
  esac
  shift
done
while IFS=' ' read -r end row; do
  if [[ ! $end < $S && ! $end > $E ]]; then printf '%s\n' "${row//X/$G}"; fi
done <"$D/jobs"
exit 0
)script");
    std::filesystem::permissions(config_.sacct, std::filesystem::perms::owner_all);
    directory_.write("jobs", "");
  }

  // A job that ended so long before the clock's beginning.
  void job(int id, std::chrono::seconds before_start, int nodes = 1) {
    const Timestamp end{test::FakeClock::kStart.nanoseconds - before_start.count() * kSecond};
    const auto text = [](Timestamp time) {
      return format_rfc3339(time, TimePrecision::kSeconds).substr(0, 19);
    };
    const std::string start = text({end.nanoseconds - 3600 * kSecond});
    const std::string n = std::to_string(nodes);
    std::string row;
    for (const std::string& field : {std::to_string(id),
                                     std::to_string(id),
                                     "0"s,
                                     "0"s,
                                     "root"s,
                                     "root"s,
                                     "chem"s,
                                     "batch"s,
                                     "normal"s,
                                     start,
                                     start,
                                     text(end),
                                     "3600"s,
                                     "00:00:00"s,
                                     "120"s,
                                     "COMPLETED"s,
                                     "0:0"s,
                                     n,
                                     "4"s,
                                     "cpu=4,mem=4G,node=" + n,
                                     "04:00:00"s,
                                     "04:00:00"s,
                                     "00:00:00"s,
                                     ""s,
                                     ""s,
                                     ""s,
                                     "n[1-"s + n + "]",
                                     "/home"s,
                                     "md"s}) {
      row += field + "X";
    }
    lines_ += text(end) + " " + row + "\n";
    directory_.write("jobs", lines_);
  }
  Result<void> import() {
    return run_accounting(config_, {"usage", "lab", log_, clock_}, writer_, {}, true);
  }
  std::vector<std::string> calls() const {
    std::vector<std::string> result;
    std::istringstream lines(directory_.exists("calls") ? directory_.read("calls") : "");
    for (std::string line; std::getline(lines, line);) result.push_back(line);
    return result;
  }

  test::TempDir directory_;
  test::FakeClock clock_;
  test::RecordingLogger log_;
  JobConfig config_;
  FakeWriter writer_;
  std::string lines_;
};

TEST_F(AccountingTest, TheFirstImportTakesTheLastDay) {
  job(1, 1h);
  job(2, 23h);
  job(3, 25h);
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), UnorderedElementsAre("1", "2"));
  EXPECT_EQ(writer_.taken[0].id.size(), 64U);
}

TEST_F(AccountingTest, ARestartTellsNothingTwiceAndLosesNothing) {
  job(1, 1h);
  job(2, 30s);
  ASSERT_TRUE(import());
  ASSERT_THAT(writer_.taken, SizeIs(2));
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.taken, SizeIs(2))
      << "the overlap was asked for again, and its jobs were known";
  clock_.advance(60s);
  job(3, -30s);
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), UnorderedElementsAre("1", "2", "3"));
}

TEST_F(AccountingTest, AnOutageOfDaysIsCaughtUpInWindows) {
  ASSERT_TRUE(import());
  const std::size_t before = calls().size();
  clock_.advance(48h);
  job(1, -1h);
  job(2, -30h);
  job(3, -47h);
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), ElementsAre("1", "2", "3"));
  EXPECT_EQ(calls().size() - before, 8U) << "six hours each";
}

TEST_F(AccountingTest, AJobThatComesLateIntoTheAccountingIsFoundWithinTheOverlap) {
  ASSERT_TRUE(import());
  clock_.advance(60s);
  job(1, 300s);  // ended before the first import, and was not there yet
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), ElementsAre("1"));
  clock_.advance(60s);
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), ElementsAre("1"));
}

TEST_F(AccountingTest, WhenSacctFailsTheCursorStays) {
  ASSERT_TRUE(import());
  clock_.advance(2h);
  job(1, -30min);
  directory_.write("broken", "");
  const auto failed = import();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(failed.error().message(), HasSubstr("Problem talking to the database"));
  std::filesystem::remove(directory_.path() + "/broken");
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), ElementsAre("1"));
}

TEST_F(AccountingTest, WhenTheJournalRefusesTheCursorStays) {
  job(1, 30s);
  writer_.refuse = true;
  ASSERT_FALSE(import());
  EXPECT_EQ(writer_.position(), std::nullopt);
  writer_.refuse = false;
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), ElementsAre("1"));
}

TEST_F(AccountingTest, JobsOfOneNodeAreLeftOutWhereTheirNodesTellOfThem) {
  config_.accounting_jobs = AccountingJobs::kMultiNode;
  job(1, 30s);
  job(2, 30s, 2);
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), ElementsAre("2"));
}

TEST_F(AccountingTest, AClockThatWasSetBackTellsNothingTwice) {
  job(1, 30s);
  ASSERT_TRUE(import());
  clock_.jump_to({test::FakeClock::kStart.nanoseconds - 3600 * kSecond});
  ASSERT_TRUE(import());
  EXPECT_THAT(writer_.ids(), ElementsAre("1"));
}

TEST_F(AccountingTest, APositionThatIsNotUnderstoodIsSaidAndTheLastDayImportedAnew) {
  writer_.position_ = "garbage";
  job(1, 30s);
  ASSERT_TRUE(import());
  EXPECT_TRUE(log_.has("USAGE_POSITION_UNREAD"));
  EXPECT_THAT(writer_.ids(), ElementsAre("1"));
}

TEST_F(AccountingTest, TheQuestionIsInUtcForAllUsersAndForEachLifeOfAJob) {
  ASSERT_TRUE(import());
  EXPECT_THAT(calls(), Contains(::testing::AllOf(HasSubstr("--allusers --duplicates --local"),
                                                 HasSubstr("--endtime 2026-11-21T00:00:00"),
                                                 HasSubstr("--delimiter=@"))));
}

}  // namespace
}  // namespace scriptorium::usage

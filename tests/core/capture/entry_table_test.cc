#include "core/capture/entry_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

namespace scriptorium {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using In = EntryTable;
using Action = EntryAction::Kind;

constexpr std::string_view kKey = "hash.1/job.11";
constexpr SteadyTime kStart{std::chrono::hours(1)};
const std::string kId(64, 'a');

FileStat stat_of(std::uint64_t inode, std::uint64_t size) {
  FileStat stat;
  stat.device = 1;
  stat.inode = inode;
  stat.size = size;
  stat.links = 1;
  stat.mtime_ns = 1000;
  return stat;
}
SpoolFile script(std::uint64_t inode = 7) {
  return {.name = "script", .stat = stat_of(inode, 4), .bytes = make_bytes("true")};
}
CaptureRecord record(CaptureRecord::Kind kind = CaptureRecord::Kind::kWhole) {
  CaptureRecord made;
  made.identity = identity_of("script", script().stat);
  made.event_id = made.capture_key = *pack_event_id(kId);
  made.kind = kind;
  made.marked = true;
  return made;
}
Assessment judged(Assessment::State state) { return {.state = state, .reason = "reason"}; }

// ---- what is told to the table; times count from kStart

EntryTable::Input appeared(milliseconds at = {}) {
  return In::DirectoryAppeared{kKey, kStart + at};
}
EntryTable::Input removed(bool gone) { return In::DirectoryRemoved{kKey, gone}; }
EntryTable::Input begin(milliseconds at = {}) { return In::Inspecting{kKey, "scan", kStart + at}; }
EntryTable::Input inspected(bool found, Assessment::State state = Assessment::State::kIncomplete,
                            milliseconds at = {}, std::uint64_t step = 1) {
  return In::Inspected{
      .content = {kKey, judged(state), kStart + at, {}}, .found = found, .step = step};
}
EntryTable::Input unreadable() {
  return In::Inspected{.content = {kKey, {}, kStart, {}}, .found = true, .unreadable = true};
}
EntryTable::Input content(Assessment::State state, milliseconds at = {}) {
  return In::Content{kKey, judged(state), kStart + at, {}};
}
EntryTable::Input arrived(bool is_record = false) {
  return In::ContentArrived{kKey, is_record, kStart};
}
EntryTable::Input captured(CaptureRecord::Kind kind = CaptureRecord::Kind::kWhole) {
  return In::Captured{.key = kKey, .record = record(kind)};
}
EntryTable::Input captured_again() {
  return In::Captured{.key = kKey, .record = record(), .duplicate = true};
}
EntryTable::Input refused(bool over_share = false) {
  return In::Refused{.key = kKey, .whole = true, .over_share = over_share, .now = kStart};
}
EntryTable::Input listed(std::uint64_t directory = 3, bool counts = true) {
  return In::Listed{kKey, directory, counts, kStart};
}
EntryTable::Input timer(milliseconds at) { return In::Timer{kStart + at}; }
EntryTable::Input drained() { return In::Drained{.structure = true, .all = true}; }
EntryTable::Input unparsable(bool vanished, bool exists) {
  return In::Unparsable{.key = kKey, .vanished = vanished, .exists = exists, .message = "no job"};
}
EntryTable::Input file_made(bool in_directory, bool is_record = false) {
  return In::FileChanged{.key = kKey,
                         .file = "script",
                         .in_directory = in_directory,
                         .appeared = true,
                         .is_record = is_record,
                         .now = kStart};
}

// A step of what came before: an input, or a file that was read.
using Step = std::variant<EntryTable::Input, SpoolFile>;

struct Row {
  const char* name;
  bool content_notifications;
  std::vector<Step> given;
  EntryTable::Input when;
  std::vector<Action> then;
  std::string reason = "";  // of the one that counts
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

using State = Assessment::State;

const std::vector<Row> kRows = {
    {"AnEntryThatAppearsWaitsForItsContent", true, {}, appeared(), {Action::kCountNumber}},
    {"WithoutContentItIsReadAtOnce",
     false,
     {},
     appeared(),
     {Action::kCountNumber, Action::kReadAtOnce}},
    {"ItsInspectionIsDueWhenNoContentCame",
     true,
     {appeared()},
     timer(milliseconds{300}),
     {Action::kInspect}},
    {"NotBefore", true, {appeared()}, timer(milliseconds{299}), {}},
    {"WholeContentIsTaken",
     true,
     {arrived(), script()},
     content(State::kComplete),
     {Action::kTake}},
    {"IncompleteContentIsInspectedLater",
     true,
     {arrived(), script()},
     content(State::kIncomplete),
     {}},
    {"AndThenInspected",
     true,
     {arrived(), script(), content(State::kIncomplete)},
     timer(milliseconds{200}),
     {Action::kInspect}},
    {"UntilItsTimeIsUp",
     true,
     {arrived(), script()},
     content(State::kIncomplete, seconds{60}),
     {Action::kTake}},
    {"WithoutContentAnIncompleteEntryIsWatched",
     false,
     {appeared(), begin(), script()},
     inspected(true, State::kIncomplete),
     {Action::kWatch}},
    {"WhatIsNotAJobIsIgnored",
     true,
     {arrived(), script()},
     content(State::kIgnore),
     {Action::kCountIgnored, Action::kRelease},
     "reason"},
    {"OnceOnly",
     true,
     {arrived(), script(), content(State::kIgnore), arrived(), script()},
     content(State::kIgnore),
     {Action::kRelease}},
    {"ADuplicateOfAnUnknownScriptIsTaken",
     true,
     {arrived(), script()},
     content(State::kDuplicate),
     {Action::kTake}},
    {"AnEmptyEntryIsIgnoredInTheEnd",
     true,
     {appeared(), begin(seconds{60})},
     inspected(true, State::kIncomplete, seconds{60}),
     {Action::kCountIgnored, Action::kIgnoreEmpty},
     "empty entry"},

    {"WhatVanishesUnreadMayStillBeInTheQueue", true, {appeared(), begin()}, inspected(false), {}},
    {"InTheSameStepToo",
     true,
     {appeared(), begin(), inspected(false), begin()},
     inspected(false),
     {}},
    {"InALaterStepItIsMissed",
     true,
     {appeared(), begin(), inspected(false), begin()},
     inspected(false, State::kIncomplete, {}, 2),
     {Action::kCountMissed, Action::kRelease},
     "vanished"},
    {"WithoutAQueueItIsMissedAtOnce",
     false,
     {appeared(), begin()},
     inspected(false),
     {Action::kCountMissed, Action::kRelease},
     "vanished"},
    {"WhatNobodySawIsNotMissed", false, {begin()}, inspected(false), {Action::kRelease}},
    {"WhatCouldNotBeReadIsMissedForThat",
     false,
     {appeared(), begin(), unreadable(), begin()},
     inspected(false),
     {Action::kCountMissed, Action::kRelease},
     "unreadable"},
    {"WhatIsUnreadableWaits", false, {appeared(), begin()}, unreadable(), {}},
    {"TheOldNotificationOfWhatWasMissedIsNothing",
     false,
     {appeared(), begin(), inspected(false)},
     appeared(),
     {}},
    {"AfterItsRemovalTheNameIsAnotherEntry",
     false,
     {appeared(), begin(), inspected(false), removed(true)},
     appeared(),
     {Action::kCountNumber, Action::kReadAtOnce}},
    {"SoItIsWhenNothingIsQueuedAnyMore",
     false,
     {appeared(), begin(), inspected(false), drained()},
     appeared(),
     {Action::kCountNumber, Action::kReadAtOnce}},
    {"WhatWasReadOfAVanishedEntryIsTaken",
     false,
     {appeared(), begin(), script()},
     inspected(false, State::kIncomplete),
     {Action::kTake}},
    {"ARecordFileAloneIsNotMissed",
     true,
     {arrived(true), begin()},
     inspected(false),
     {Action::kRelease}},

    {"WhatIsTakenIsRemembered", true, {arrived(), script()}, captured(), {Action::kRelease}},
    {"TheSameEventAgainIsADuplicate",
     true,
     {arrived(), script(), captured(), arrived(), script()},
     captured_again(),
     {Action::kCountDuplicate, Action::kRelease}},
    {"ItsRemovalForgetsTheMark",
     true,
     {arrived(), script(), captured()},
     removed(true),
     {Action::kForgetMark}},
    {"ButNotIfTheNameStandsAgain", true, {arrived(), script(), captured()}, removed(false), {}},
    {"AScanVerifiesTheRecord",
     true,
     {arrived(), script(), captured()},
     listed(),
     {Action::kVerify}},
    {"AScanInspectsWhatItDoesNotKnow",
     true,
     {},
     listed(),
     {Action::kCountNumber, Action::kInspect}},
    {"AScanLeavesWhatIsDueAlone", true, {appeared()}, listed(), {}},
    {"AnotherDeviceAfterAMountIsKeptInTheMark",
     true,
     {arrived(), script(), captured()},
     In::Verified{kKey, {.file = "script", .device = 2, .inode = 7, .mtime_ns = 1000, .size = 4}},
     {Action::kSetMark}},
    {"WhatNoScanListsIsForgotten",
     true,
     {arrived(), script(), captured()},
     In::Unlisted{kKey},
     {Action::kForgetMark}},
    {"ALaterStateOfItIsInspected",
     false,
     {begin(), script(), captured()},
     file_made(true),
     {Action::kInspect}},
    {"AnIgnoredEntryThatGetsAScriptIsInspected",
     false,
     {begin(), script(), content(State::kIgnore)},
     file_made(false),
     {Action::kCountNumber, Action::kInspect}},
    {"AScriptWithoutADirectoryIsGoneWithItsFile",
     false,
     {begin(), script(), captured()},
     In::FileRemoved{kKey, "script", false, false},
     {Action::kForgetMark}},
    {"ItsPartStaysWatched",
     false,
     {begin(), script()},
     captured(CaptureRecord::Kind::kPartial),
     {Action::kRelease}},

    {"WhatIsRefusedWaits", true, {arrived(), script()}, refused(), {}},
    {"AndIsOfferedAgain",
     true,
     {arrived(), script(), refused()},
     In::Offered{kKey},
     {Action::kTake}},
    {"NotTwice",
     true,
     {arrived(), script(), refused(), In::Offered{kKey}, captured()},
     In::Offered{kKey},
     {}},
    {"NoTimerTouchesIt", true, {arrived(), script(), refused()}, timer(seconds{100}), {}},
    {"AScanNeither", true, {arrived(), script(), refused()}, listed(), {}},
    {"ItsBytesOutliveIt", true, {arrived(), script(), refused()}, removed(true), {}},
    {"WithoutAPlaceInTheListItIsLeftToAScan",
     true,
     {arrived(), script(), refused()},
     In::NotKept{kKey},
     {Action::kLeaveToScan, Action::kRelease}},
    {"WithoutRoomInTheEndItIsMissed",
     true,
     {arrived(), script(), refused()},
     In::WaitedInVain{kKey},
     {Action::kCountMissed, Action::kRelease},
     "journal full"},

    {"AnEntryThatIsNoJobIsIgnored",
     true,
     {arrived(), script()},
     unparsable(true, true),
     {Action::kRelease, Action::kCountMissed},
     "vanished"},
    {"AnUnparsableOneIsMissed",
     true,
     {arrived(), script()},
     unparsable(false, true),
     {Action::kRelease, Action::kCountMissed},
     "unparsable"},
};

class EntryTableTransitionTest : public testing::TestWithParam<Row> {};

TEST_P(EntryTableTransitionTest, AnswersWithTheActionsThatFollow) {
  const Row& row = GetParam();
  EntryTable table({.incomplete_after = seconds{60},
                    .content_notifications = row.content_notifications,
                    .watches_entries = !row.content_notifications});
  table.begin_scan(1, true);
  for (const Step& step : row.given) {
    if (const auto* file = std::get_if<SpoolFile>(&step)) {
      table.add_file(kKey, *file, kStart);
    } else {
      table.on(std::get<EntryTable::Input>(step));
    }
  }
  std::vector<Action> kinds;
  std::string reason;
  for (const EntryAction& action : table.on(row.when)) {
    EXPECT_EQ(action.key, kKey);
    kinds.push_back(action.kind);
    if (!action.reason.empty()) reason = action.reason;
  }
  EXPECT_EQ(kinds, row.then);
  EXPECT_EQ(reason, row.reason);
}

INSTANTIATE_TEST_SUITE_P(Table, EntryTableTransitionTest, testing::ValuesIn(kRows),
                         [](const auto& info) { return info.param.name; });

// ---- what is not a single transition

class EntryTableTest : public testing::Test {
 protected:
  EntryTable table_{{.incomplete_after = seconds{60}, .content_notifications = true}};

  void take(const std::string& key, std::uint64_t inode) {
    table_.on(In::ContentArrived{key, false, kStart});
    table_.add_file(key, script(inode), kStart);
    CaptureRecord made = record();
    made.identity.inode = inode;
    table_.on(In::Captured{.key = key, .record = made});
  }
};

TEST_F(EntryTableTest, AHardLinkToTheScriptOfAnotherEntryIsIgnored) {
  take("hash.2/job.2", 7);
  table_.on(arrived());
  table_.add_file(kKey, script(7), kStart);
  const EntryActions actions = table_.on(content(State::kDuplicate));
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(actions[0].reason, "hard link to another entry's script");
}

TEST_F(EntryTableTest, AMarkIsARecordThatIsVerifiedAndNotInspected) {
  table_.restore(mark_of(kKey, record()));
  table_.begin_scan(1, true);
  ASSERT_NE(table_.record(kKey), nullptr);
  EXPECT_EQ(*table_.record(kKey)->event_id.begin(), 0xaa);
  EXPECT_EQ(table_.on(listed()).front().kind, Action::kVerify);
  EXPECT_TRUE(table_.on(In::Verified{kKey, record().identity}).empty());
  EXPECT_EQ(table_.on(removed(true)).front().kind, Action::kForgetMark);
}

TEST_F(EntryTableTest, AMarkWithoutAnEventIdIsOfNoUse) {
  CaptureMark mark = mark_of(kKey, record());
  mark.event_id = "not an id";
  table_.restore(mark);
  EXPECT_EQ(table_.entries().all().size(), 0U);
}

TEST_F(EntryTableTest, AScanByInodesAloneSkipsARecordInTheSameDirectory) {
  take(std::string(kKey), 7);
  table_.begin_scan(2, false);
  table_.listed_with(kKey, 3);
  EXPECT_TRUE(table_.on(listed(3)).empty());
  EXPECT_EQ(table_.on(listed(4)).front().kind, Action::kVerify);
}

TEST_F(EntryTableTest, WhatAScanHasNotListedIsSaid) {
  take("a", 1);
  take("b", 2);
  table_.begin_scan(1, true);
  table_.listed_with("a", 0);
  EXPECT_THAT(table_.unlisted(1), testing::ElementsAre("b"));
}

TEST_F(EntryTableTest, ALateNotificationOfWhatWasCapturedAndRemovedIsRecognised) {
  take(std::string(kKey), 7);
  table_.on(removed(true));
  EXPECT_TRUE(table_.was_captured(kKey, record().identity));
  table_.on(drained());
  EXPECT_FALSE(table_.was_captured(kKey, record().identity));
  EXPECT_EQ(table_.entries().all().size(), 0U);
}

TEST_F(EntryTableTest, AnotherStateOfTheSameInodeIsNotWhatWasCaptured) {
  take(std::string(kKey), 7);
  for (auto change :
       {+[](FileIdentity& id) { ++id.inode; }, +[](FileIdentity& id) { ++id.size; },
        +[](FileIdentity& id) { ++id.mtime_ns; }, +[](FileIdentity& id) { ++id.device; }}) {
    FileIdentity other = record().identity;
    change(other);
    EXPECT_FALSE(table_.was_captured(kKey, other));
  }
}

TEST_F(EntryTableTest, BytesBeyondTheBoundAreLetGoAndReadAgain) {
  const std::string big(9U << 20U, 'x');
  for (int i = 0; i < 5; ++i) {
    const std::string key = "job." + std::to_string(i);
    table_.on(In::ContentArrived{key, false, kStart});
    SpoolFile file = script();
    file.bytes = make_bytes(big);
    table_.add_file(key, std::move(file), kStart);
    table_.on(In::Refused{.key = key, .whole = true, .now = kStart});
  }
  EXPECT_LE(table_.entries().held_bytes(), EntryTable::kHeldBytesLimit);
  EXPECT_EQ(table_.waiting().size(), 5U);
  EXPECT_EQ(table_.on(In::Offered{"job.4"}).front().kind, Action::kInspect);
  EXPECT_EQ(table_.on(In::Offered{"job.0"}).front().kind, Action::kTake);
}

TEST_F(EntryTableTest, AUserAtHisShareMayHoldHalfOfThat) {
  const std::string big(17U << 20U, 'x');
  table_.on(arrived());
  SpoolFile file = script();
  file.bytes = make_bytes(big);
  table_.add_file(kKey, std::move(file), kStart);
  table_.on(refused(true));
  EXPECT_EQ(table_.entries().held_bytes(), 0U);
}

TEST_F(EntryTableTest, OfManyThatWaitForRoomOnlySomeAreKeptAndTheRestIsLeftToAScan) {
  constexpr std::size_t kEntries = 100'000;
  std::size_t left = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < kEntries; ++i) {
    const std::string key = "job." + std::to_string(i);
    table_.on(In::ContentArrived{key, false, kStart});
    table_.add_file(key, script(), kStart);
    for (const EntryAction& action :
         table_.on(In::Refused{.key = key, .whole = true, .now = kStart})) {
      left += action.kind == Action::kLeaveToScan ? 1 : 0;
      first += action.first ? 1 : 0;
    }
  }
  EXPECT_EQ(table_.waiting().size(), WaitingList::kMost);
  EXPECT_EQ(table_.entries().all().size(), WaitingList::kMost);
  EXPECT_EQ(left, kEntries - WaitingList::kMost);
  EXPECT_EQ(first, 1U);
}

TEST_F(EntryTableTest, OneUsersWaitingEntriesMakePlaceForThoseWhoseOwnerIsAskedFor) {
  const auto refuse = [&](const std::string& key) {
    table_.on(In::ContentArrived{key, false, kStart});
    table_.add_file(key, script(), kStart);
    const auto actions =
        table_.on(In::Refused{.key = key, .whole = true, .over_share = true, .now = kStart});
    return std::ranges::count(actions, Action::kLeaveToScan, &EntryAction::kind) == 0;
  };
  for (std::size_t i = 0; i < WaitingList::kMost + 100; ++i)
    ASSERT_TRUE(refuse("job." + std::to_string(i)));
  ASSERT_TRUE(refuse("job.last"));
  WaitingList& waiting = table_.waiting();
  std::vector<std::string> not_kept;
  for (std::size_t left = waiting.begin_round(kStart, true); left > 0; --left) {
    WaitingList::Item item = waiting.take();
    const std::string key = item.key;
    if (!waiting.keep(std::move(item))) not_kept.push_back(key);
  }
  ASSERT_EQ(not_kept.size(), 101U);
  EXPECT_EQ(not_kept.front(), "job.0") << "the oldest ones, whose owner is known by now";
  EXPECT_EQ(not_kept.back(), "job.100");
  EXPECT_EQ(waiting.items().back().key, "job.last");
}

TEST_F(EntryTableTest, DeparturesThatNeverEndAreBounded) {
  for (std::size_t i = 0; i < EntryTable::kDeparturesLimit + 5000; ++i) {
    const std::string key = "job." + std::to_string(i);
    take(key, i + 1);
    table_.on(In::DirectoryRemoved{key, true});
    table_.on(In::Drained{});
    ASSERT_LE(table_.entries().departures(), EntryTable::kDeparturesLimit + 1);
    ASSERT_LE(table_.entries().retired(), EntryTable::kRetiredLimit + 1);
  }
}

TEST_F(EntryTableTest, WhatIsTakenBeforeItIsDueIsNotScheduledAnyMore) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::string key = "job." + std::to_string(i);
    table_.on(In::DirectoryAppeared{key, kStart});
    take(key, i + 1);
  }
  EXPECT_FALSE(table_.next_due());
}

TEST(InspectionScheduleTest, TheOlderAnEntryIsTheLessOftenItIsInspected) {
  const auto after = [](seconds age) {
    return InspectionSchedule::retry_at(kStart + age, kStart) - (kStart + age);
  };
  EXPECT_EQ(after(seconds{0}), milliseconds{200});
  EXPECT_EQ(after(seconds{8}), seconds{1});
  EXPECT_EQ(after(seconds{3600}), seconds{30});
}

TEST(PackedEventIdTest, IsTheSixtyFourDigitsAndNothingElse) {
  const std::string text = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  ASSERT_TRUE(pack_event_id(text));
  EXPECT_EQ(unpack_event_id(*pack_event_id(text)), text);
  EXPECT_FALSE(pack_event_id(text.substr(1)));
  EXPECT_FALSE(pack_event_id(std::string(64, 'G')));
}

}  // namespace
}  // namespace scriptorium

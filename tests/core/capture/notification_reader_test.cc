#include "core/capture/notification_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

namespace scriptorium {
namespace {

using Change = StructureEvent::Kind;

std::string inotify_bytes(int watch, std::uint32_t mask, std::string_view name) {
  inotify_event head{};
  head.wd = watch;
  head.mask = mask;
  head.len = name.empty() ? 0 : static_cast<std::uint32_t>((name.size() / 16 + 1) * 16);
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes.append(name);
  bytes.resize(sizeof head + head.len);
  return bytes;
}

std::string fanotify_bytes(int fd, std::uint64_t mask, std::uint8_t version,
                           std::uint32_t length = FAN_EVENT_METADATA_LEN) {
  fanotify_event_metadata event{};
  event.event_len = length;
  event.vers = version;
  event.metadata_len = FAN_EVENT_METADATA_LEN;
  event.mask = mask;
  event.fd = fd;
  event.pid = 42;
  return {reinterpret_cast<const char*>(&event), sizeof event};
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

struct MaskRow {
  std::uint32_t mask;
  Change kind;
  bool is_directory;
  bool moved;
};

TEST(ParseStructureTest, EachMaskIsOneKindOfEvent) {
  const std::vector<MaskRow> rows = {
      {IN_CREATE | IN_ISDIR, Change::kAppeared, true, false},
      {IN_MOVED_TO, Change::kAppeared, false, true},
      {IN_DELETE, Change::kGone, false, false},
      {IN_MOVED_FROM | IN_ISDIR, Change::kGone, true, true},
      {IN_CLOSE_WRITE, Change::kWritten, false, false},
      {IN_DELETE_SELF, Change::kSelfGone, false, false},
      {IN_MOVE_SELF, Change::kSelfGone, false, false},
      {IN_IGNORED, Change::kWatchEnded, false, false},
      {IN_UNMOUNT, Change::kUnmounted, false, false},
      {IN_Q_OVERFLOW, Change::kOverflow, false, false},
  };
  for (const MaskRow& row : rows) {
    const auto events = parse_structure(inotify_bytes(3, row.mask, "job.1"), 0);
    ASSERT_EQ(events.size(), 1U) << row.mask;
    EXPECT_EQ(events[0].kind, row.kind) << row.mask;
    EXPECT_EQ(events[0].is_directory, row.is_directory) << row.mask;
    EXPECT_EQ(events[0].moved, row.moved) << row.mask;
    EXPECT_EQ(events[0].watch, 3);
    EXPECT_EQ(events[0].name, "job.1");
  }
}

TEST(ParseStructureTest, EventsCountTheBytesFromTheVeryBeginning) {
  const std::string first = inotify_bytes(1, IN_CREATE, "a-name-of-sixteen-or-more");
  const std::string second = inotify_bytes(2, IN_ACCESS, "");  // which nobody asked for
  const std::string third = inotify_bytes(3, IN_DELETE, "");
  const auto events = parse_structure(first + second + third, 1000);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].name, "a-name-of-sixteen-or-more");
  EXPECT_EQ(events[0].end, 1000 + first.size());
  EXPECT_EQ(events[1].name, "");
  EXPECT_EQ(events[1].end, 1000 + first.size() + second.size() + third.size());
}

TEST(ParseStructureTest, WhatIsCutOffIsLeft) {
  const std::string bytes = inotify_bytes(1, IN_CREATE, "name");
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_TRUE(parse_structure(std::string_view(bytes).substr(0, size), 0).empty()) << size;
}

TEST(ParseContentTest, TakesOverEveryDescriptorAlsoOfEventsThatItLeavesOut) {
  const int good = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int odd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  {
    const auto events =
        parse_content(fanotify_bytes(good, FAN_CLOSE_WRITE, FANOTIFY_METADATA_VERSION) +
                      fanotify_bytes(odd, FAN_CLOSE_WRITE, FANOTIFY_METADATA_VERSION + 1));
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].fd.get(), good);
    EXPECT_EQ(events[0].writer, 42);
    EXPECT_FALSE(events[0].overflow);
    EXPECT_FALSE(is_open(odd));
  }
  EXPECT_FALSE(is_open(good));
}

TEST(ParseContentTest, AnOverflowHasNoDescriptor) {
  const auto events =
      parse_content(fanotify_bytes(FAN_NOFD, FAN_Q_OVERFLOW, FANOTIFY_METADATA_VERSION));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(events[0].overflow);
  EXPECT_FALSE(events[0].fd);
}

TEST(ParseContentTest, ALengthThatCannotBeEndsIt) {
  for (const std::uint32_t length : {0U, 8U, 4096U}) {
    EXPECT_TRUE(
        parse_content(fanotify_bytes(FAN_NOFD, FAN_Q_OVERFLOW, FANOTIFY_METADATA_VERSION, length))
            .empty());
  }
}

}  // namespace
}  // namespace scriptorium

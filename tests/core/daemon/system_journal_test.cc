#include "core/daemon/system_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <map>

#include "core/base/file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::system_journal {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Reads an entry as journald does: "NAME\n", the value's length in 64 bits, the value, "\n"; or
// "NAME=value\n".
std::multimap<std::string, std::string> parsed(std::string_view entry) {
  std::multimap<std::string, std::string> fields;
  while (!entry.empty()) {
    const std::size_t end = entry.find('\n');
    const std::string_view line = entry.substr(0, end);
    entry.remove_prefix(end + 1);
    if (const std::size_t equals = line.find('='); equals != std::string_view::npos) {
      fields.emplace(line.substr(0, equals), line.substr(equals + 1));
      continue;
    }
    std::uint64_t size = 0;
    for (unsigned i = 0; i < 8; ++i)
      size |= std::uint64_t{static_cast<unsigned char>(entry.at(i))} << 8 * i;
    fields.emplace(line, entry.substr(8, size));
    EXPECT_EQ(entry.at(8 + size), '\n');
    entry.remove_prefix(8 + size + 1);
  }
  return fields;
}

class SystemJournalTest : public ::testing::Test {
 protected:
  SystemJournalTest() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  std::multimap<std::string, std::string> received() {
    std::string entry(std::size_t{1} << 16, '\0');
    const ssize_t count = ::recv(socket_.get(), entry.data(), entry.size(), 0);
    EXPECT_GE(count, 0);
    return parsed(std::string_view(entry).substr(0, static_cast<std::size_t>(count)));
  }

  scriptorium::test::TempDir dir_;
  const std::string path_ = dir_.path_to("journal");
  UniqueFd socket_;
};

TEST_F(SystemJournalTest, EachFieldHasTheKeyInCapitalsAndIsFoundByItsValue) {
  ASSERT_TRUE(
      send("a question", "0123", {{"user", "alice"}, {"uid", 1001}, {"events", ""}}, path_));
  EXPECT_THAT(received(),
              UnorderedElementsAre(
                  Pair("MESSAGE", "a question"), Pair("MESSAGE_ID", "0123"), Pair("PRIORITY", "6"),
                  Pair("SYSLOG_IDENTIFIER", "scriptorium"), Pair("SCRIPTORIUM_USER", "alice"),
                  Pair("SCRIPTORIUM_UID", "1001"), Pair("SCRIPTORIUM_EVENTS", "")));
}

TEST_F(SystemJournalTest, NoBytesOfAValueBecomeAnotherField) {
  for (const std::string& value :
       {std::string("x\nSCRIPTORIUM_USER=root"), std::string("x\nSCRIPTORIUM_USER\n\1\0\0\0", 22),
        std::string("\0\n\n", 3), std::string("\xff\xfe\n="), std::string(20'000, '\n')}) {
    ASSERT_TRUE(send("asked " + value, "0123", {{"user", "alice"}, {"asked", value}}, path_));
    EXPECT_THAT(
        received(),
        UnorderedElementsAre(Pair("MESSAGE", "asked " + value), Pair("MESSAGE_ID", "0123"),
                             Pair("PRIORITY", "6"), Pair("SYSLOG_IDENTIFIER", "scriptorium"),
                             Pair("SCRIPTORIUM_USER", "alice"), Pair("SCRIPTORIUM_ASKED", value)));
  }
}

TEST_F(SystemJournalTest, WhereNoJournalTakesTheEntryItIsNotSent) {
  const auto absent = send("a question", "0123", {}, dir_.path_to("other"));
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message(), HasSubstr("no such file"));
  socket_.reset();
  const auto stopped = send("a question", "0123", {}, path_);
  ASSERT_FALSE(stopped);
  EXPECT_THAT(stopped.error().message(), HasSubstr("refused"));
}

TEST_F(SystemJournalTest, OnlyTheDescriptorThatTheVariableNamesIsItsStream) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd stream(ends[0]);
  const UniqueFd other(ends[1]);
  const auto stat = stat_fd(stream.get());
  ASSERT_TRUE(stat);
  const std::string named = std::to_string(stat->device) + ":" + std::to_string(stat->inode);
  EXPECT_TRUE(has_stream(stream.get(), named.c_str()));
  EXPECT_FALSE(has_stream(other.get(), named.c_str())) << "a terminal, or a file";
  EXPECT_FALSE(has_stream(stream.get(), nullptr));
  EXPECT_FALSE(has_stream(stream.get(), "")) << "and what no systemd writes";
  EXPECT_FALSE(has_stream(-1, named.c_str()));
}

}  // namespace
}  // namespace scriptorium::system_journal

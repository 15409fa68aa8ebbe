#include "core/capture/foreign_filter.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/capture/capture.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::test {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Only remembers what was asked of it.
class AskedAccess final : public SpoolAccess {
 public:
  const std::string& root() const override { return root_; }
  Result<FileStat> stat(const std::string& /*path*/) override { return FileStat{}; }
  Result<std::vector<SpoolName>> list(const std::string& /*path*/) override {
    return std::vector<SpoolName>{};
  }
  Result<UniqueFd> open(const std::string& /*path*/) override { return UniqueFd{}; }
  Result<std::vector<OpenedName>> list_open(const std::string& /*path*/) override {
    return std::vector<OpenedName>{};
  }
  int inotify_fd() const override { return -1; }
  int fanotify_fd() const override { return -1; }
  Result<int> watch(const std::string& /*path*/, std::uint32_t /*mask*/) override { return 0; }
  void unwatch(int /*number*/) override {}
  Result<void> mark() override { return {}; }
  Result<void> leave_out(const std::string& directory) override {
    asked.push_back(directory);
    if (error) return *error;
    return {};
  }
  void leave_nothing_out() override { asked.clear(); }

  std::vector<std::string> asked;
  std::optional<Error> error;

 private:
  std::string root_ = "/spool";
};

class ForeignFilterTest : public ::testing::Test {
 protected:
  void saw(const std::string& path, int times) {
    for (int i = 0; i < times; ++i) filter.saw(path);
  }
  AskedAccess access;
  ForeignFilter filter{access};
};

TEST_F(ForeignFilterTest, LeavesADirectoryOutAtItsSixteenthEvent) {
  for (int i = 0; i < 15; ++i) filter.saw("/home/a/build/" + std::to_string(i) + ".o");
  EXPECT_THAT(access.asked, IsEmpty());
  filter.saw("/home/a/build/15.o");
  EXPECT_THAT(access.asked, UnorderedElementsAre("/home/a/build"));
}

TEST_F(ForeignFilterTest, AsksAgainWhenEventsGoOnComing) {
  saw("/var/log/x.log", 32);
  EXPECT_THAT(access.asked, UnorderedElementsAre("/var/log", "/var/log"));
}

TEST_F(ForeignFilterTest, ForgettingBeginsTheCountAnew) {
  saw("/var/log/x.log", 16);
  saw("/srv/y", 15);
  filter.forget();
  EXPECT_THAT(access.asked, IsEmpty());
  saw("/srv/y", 15);
  EXPECT_THAT(access.asked, IsEmpty());
}

TEST_F(ForeignFilterTest, AKernelThatCannotIsAskedOnce) {
  access.error = Error{ErrorKind::kPermanent, "no"};
  saw("/var/log/x.log", 100);
  EXPECT_EQ(access.asked.size(), 1U);
}

TEST_F(ForeignFilterTest, ADirectoryThatCannotBeLeftOutDoesNotStandInTheWayOfOthers) {
  access.error = Error{ErrorKind::kTransient, "not this one"};
  saw("/home/private/x", 16);
  access.error.reset();
  saw("/var/log/x.log", 16);
  EXPECT_THAT(access.asked, UnorderedElementsAre("/home/private", "/var/log"));
}

TEST_F(ForeignFilterTest, NeverAsksForTheRootDirectoryOfAll) {
  saw("/x", 100);
  saw("x", 100);
  EXPECT_THAT(access.asked, IsEmpty());
}

// With the kernel's own marks.
class LeaveOutDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(temp.path_to("spool/hash.1"));
    std::filesystem::create_directories(temp.path_to("elsewhere"));
    root = std::filesystem::canonical(temp.path_to("spool")).string();
    group.reset(
        ::fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY | O_CLOEXEC));
    if (!group) GTEST_SKIP() << "fanotify needs root: " << std::strerror(errno);
    if (::fanotify_mark(group.get(), FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CLOSE_WRITE, AT_FDCWD,
                        root.c_str()) != 0)
      GTEST_SKIP() << "no file system mark here: " << std::strerror(errno);
  }

  Result<void> leave_out(const std::string& name) {
    return leave_out_directory(group.get(), root,
                               std::filesystem::path(temp.path_to(name)).string());
  }

  // Writes the files, and returns those of them of which an event came.
  std::set<std::string> heard(const std::vector<std::string>& names) {
    std::set<std::string> result;
    for (const std::string& name : names) {
      const UniqueFd file(::open(temp.path_to(name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
      EXPECT_TRUE(file) << name;
    }
    alignas(fanotify_event_metadata) std::array<char, 4096> buffer;
    for (ssize_t n = 0; (n = ::read(group.get(), buffer.data(), buffer.size())) > 0;) {
      const auto* event = reinterpret_cast<const fanotify_event_metadata*>(buffer.data());
      auto length = static_cast<std::size_t>(n);
      for (; FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length)) {
        const UniqueFd fd(event->fd);
        std::error_code ignored;
        const std::string path =
            std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd.get()), ignored)
                .string();
        // Others write on this file system as well.
        if (path.starts_with(temp.path())) result.insert(path.substr(temp.path().size() + 1));
      }
    }
    return result;
  }

  TempDir temp;
  std::string root;
  UniqueFd group;
};

TEST_F(LeaveOutDirectoryTest, TheKernelTellsNoMoreOfThatDirectoryAndOfAllOthers) {
  ASSERT_THAT(heard({"elsewhere/a", "spool/hash.1/b"}),
              UnorderedElementsAre("elsewhere/a", "spool/hash.1/b"));
  const auto done = leave_out("elsewhere");
  if (!done && done.error().kind() == ErrorKind::kPermanent) GTEST_SKIP() << done.error().message();
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(heard({"elsewhere/c", "spool/hash.1/d"}), UnorderedElementsAre("spool/hash.1/d"));
  leave_nothing_out(group.get());
  EXPECT_THAT(heard({"elsewhere/e", "spool/hash.1/f"}),
              UnorderedElementsAre("elsewhere/e", "spool/hash.1/f"));
}

TEST_F(LeaveOutDirectoryTest, RefusesTheSpoolAndWhatIsBelowIt) {
  for (const char* name : {"spool", "spool/hash.1", "spool/../spool/hash.1"}) {
    const auto refused = leave_out(name);
    ASSERT_FALSE(refused) << name;
    EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("is part of the spool"));
  }
  EXPECT_THAT(heard({"spool/hash.1/b"}), UnorderedElementsAre("spool/hash.1/b"));
}

TEST_F(LeaveOutDirectoryTest, DoesNotFollowASymbolicLinkToTheSpool) {
  std::filesystem::create_directory_symlink(root + "/hash.1", temp.path_to("elsewhere/link"));
  ASSERT_FALSE(leave_out("elsewhere/link"));
  EXPECT_THAT(heard({"spool/hash.1/b"}), UnorderedElementsAre("spool/hash.1/b"));
}

}  // namespace
}  // namespace scriptorium::test

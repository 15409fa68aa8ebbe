#include "checkpoint/run/tmpdir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

TEST(JobTmpdirTest, IsNoneWhereAllJobsShareItOrTheSaveDirectoryIsInIt) {
  EXPECT_EQ(job_tmpdir("/scratch/34/", "/home/alice/save"), "/scratch/34");
  EXPECT_EQ(job_tmpdir("/tmp/34", "/tmp/345"), "/tmp/34");
  for (const char* value : {"", "tmp", "/", "/tmp", "/tmp/", "/tmp/x/..", "/var/tmp", "/dev/shm"})
    EXPECT_EQ(job_tmpdir(value, "/home/alice/save"), "") << value;
  EXPECT_EQ(job_tmpdir("/scratch/34", "/scratch/34"), "");
  EXPECT_EQ(job_tmpdir("/scratch/34", "/scratch/34/save"), "");
}

class CopyOwnFilesTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path_to(name); }

  test::TempDir folder_;
};

TEST_F(CopyOwnFilesTest, CopiesFilesFoldersAndLinksInPlaceOfWhatIsThere) {
  folder_.write("from/a/file", "text");
  std::filesystem::create_symlink("/etc/passwd", path("from/link"));
  ASSERT_EQ(::mkfifo(path("from/fifo").c_str(), 0600), 0);
  ASSERT_EQ(::chmod(path("from/a/file").c_str(), 0440), 0);
  std::filesystem::create_directory(path("from/closed"));
  ASSERT_EQ(::chmod(path("from/closed").c_str(), 0500), 0);
  folder_.write("precious", "not ours");
  folder_.write("to/kept", "kept");
  std::filesystem::create_directory(path("to/a"));
  std::filesystem::create_symlink(path("precious"), path("to/a/file"));
  for (int round = 0; round < 2; ++round) {
    const auto copied = copy_own_files(path("from"), path("to"), 4);
    ASSERT_TRUE(copied) << copied.error().message();
  }
  std::ifstream file(path("to/a/file"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "text");
  EXPECT_EQ(std::filesystem::file_size(path("precious")), 8U) << "no link is followed";
  EXPECT_EQ(std::filesystem::last_write_time(path("to/a/file")),
            std::filesystem::last_write_time(path("from/a/file")));
  EXPECT_EQ(std::filesystem::read_symlink(path("to/link")), "/etc/passwd");
  EXPECT_TRUE(std::filesystem::exists(path("to/kept")));
  EXPECT_EQ(std::filesystem::status(path("to/closed")).permissions(),
            std::filesystem::perms::owner_all)
      << "it can be removed";
  EXPECT_FALSE(std::filesystem::exists(path("to/fifo")));
}

TEST_F(CopyOwnFilesTest, SaysWhyTheyAreNotCopied) {
  folder_.write("from/file", "text");
  const auto large = copy_own_files(path("from"), path("to"), 3);
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message().find("they are larger than the 3 B"), std::string::npos)
      << large.error().message();
  EXPECT_FALSE(copy_own_files(path("none"), path("to"), kAll));
  EXPECT_FALSE(copy_own_files(path("from"), path("no/such"), kAll));
}

}  // namespace
}  // namespace scriptorium::checkpoint

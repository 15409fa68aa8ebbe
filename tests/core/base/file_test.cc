#include "core/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

class FileTest : public testing::Test {
 protected:
  test::TempDir dir_;
};

TEST_F(FileTest, ReadsWholeFilesWhateverTheHint) {
  for (const std::size_t size : {0U, 1U, 4095U, 4096U, 4097U, 200'000U}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31);
    const std::string path = dir_.write("f", bytes);
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    for (const std::uint64_t hint : {std::uint64_t{0}, std::uint64_t{size}, std::uint64_t{size / 2},
                                     std::uint64_t{size * 2}}) {
      EXPECT_EQ(*read_fd(fd.get(), 1U << 20, hint), bytes) << size << " with hint " << hint;
    }
    EXPECT_EQ(read_fd(fd.get(), 100, size)->size(), std::min<std::size_t>(size, 100));
  }
}

TEST_F(FileTest, ReadFileSaysWhyItCannot) {
  EXPECT_EQ(read_file(dir_.path_to("none")).error().kind(), ErrorKind::kVanished);
  EXPECT_NE(read_file(dir_.path()).error().message().find("is a directory"), std::string::npos);
  dir_.write("large", std::string(1000, 'x'));
  EXPECT_NE(read_file(dir_.path_to("large"), 999).error().message().find("larger than 999"),
            std::string::npos);
}

TEST_F(FileTest, ReplaceFileLeavesTheNewContentAndNoTemporary) {
  dir_.write("f", "old");
  ASSERT_TRUE(replace_file(dir_.path_to("f"), "new", 0600));
  EXPECT_EQ(dir_.read("f"), "new");
  EXPECT_FALSE(dir_.exists("f.tmp"));
}

TEST_F(FileTest, MakeDirectoriesMakesAllOfThemAndRefusesAFileInTheWay) {
  ASSERT_TRUE(make_directories(dir_.path_to("a/b/c"), 0750));
  ASSERT_TRUE(make_directories(dir_.path_to("a/b/c"), 0750));
  EXPECT_TRUE(dir_.exists("a/b/c"));
  dir_.write("file", "");
  EXPECT_FALSE(make_directories(dir_.path_to("file"), 0750));
  EXPECT_FALSE(make_directories(dir_.path_to("file/below"), 0750));
}

TEST_F(FileTest, StatTellsKindsApart) {
  dir_.write("f", "12345");
  auto file = stat_path(dir_.path_to("f"));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->is_regular());
  EXPECT_EQ(file->size, 5U);
  EXPECT_TRUE(stat_path(dir_.path())->is_directory());
}

}  // namespace
}  // namespace scriptorium

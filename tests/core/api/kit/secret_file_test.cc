#include "core/api/kit/secret_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>

#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

TEST(VersionOfFilesTest, ChangesWhenOneOfTheFilesDoes) {
  const test::TempDir folder;
  const std::array<std::string, 2> files{folder.path_to("password"), folder.path_to("ca.pem")};
  const std::string none = version_of_files(files);
  folder.write("password", "one");
  const std::string made = version_of_files(files);
  EXPECT_NE(made, none);
  EXPECT_EQ(made, version_of_files(files));
  folder.write("ca.pem", "ca");
  EXPECT_NE(version_of_files(files), made);
}

TEST(VersionOfFilesTest, AReplacedFileOfTheSameSizeIsAnotherVersion) {
  const test::TempDir folder;
  const std::array<std::string, 1> files{folder.path_to("password")};
  folder.write("password", "one");
  const std::string before = version_of_files(files);
  folder.write("new", "two");
  ASSERT_EQ(::rename(folder.path_to("new").c_str(), files[0].c_str()), 0);
  EXPECT_NE(version_of_files(files), before);
}

TEST(VersionOfFilesTest, ANameWithoutSlashIsASystemdCredential) {
  const test::TempDir folder;
  const std::array<std::string, 1> files{"token"};
  ::unsetenv("CREDENTIALS_DIRECTORY");
  const std::string without = version_of_files(files);
  ::setenv("CREDENTIALS_DIRECTORY", folder.path().c_str(), 1);
  folder.write("token", "t");
  EXPECT_NE(version_of_files(files), without);
  ::unsetenv("CREDENTIALS_DIRECTORY");
}

TEST(VersionOfFilesTest, EmptyNamesAreLeftOut) {
  EXPECT_EQ(version_of_files(std::array<std::string, 2>{}), "");
}

}  // namespace
}  // namespace scriptorium

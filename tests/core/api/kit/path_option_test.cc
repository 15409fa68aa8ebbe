#include "core/api/kit/path_option.h"

#include <gtest/gtest.h>

#include <string>

namespace scriptorium {
namespace {

std::string problem_of(const Value& value, EmptyPath empty = EmptyPath::kRefused) {
  Table table{.entries = {}, .position = {}, .path = "sink.a", .damaged = false};
  table.entries.push_back({"root", value});
  Problems problems;
  check_absolute_path(table, "root", problems, empty);
  check_absolute_path(table, "missing", problems, empty);
  return problems.empty() ? "" : problems.list().front().problem;
}

TEST(PathOptionTest, OnlyAnAbsolutePathWithoutNulIsAccepted) {
  EXPECT_EQ(problem_of({std::string("/var/x"), {}}), "");
  EXPECT_EQ(problem_of({std::string("var/x"), {}}), "not an absolute path");
  EXPECT_EQ(problem_of({std::string("/a\0b", 4), {}}), "a path cannot hold a NUL byte");
  EXPECT_EQ(problem_of({std::string(), {}}), "not an absolute path");
  EXPECT_EQ(problem_of({std::string(), {}}, EmptyPath::kAllowed), "");
  EXPECT_EQ(problem_of({true, {}}), "") << "the schema reports another type";
}

TEST(PathOptionTest, FinalSlashesAreDroppedExceptTheRoots) {
  std::string path = "/a/b//";
  drop_final_slashes(path);
  EXPECT_EQ(path, "/a/b");
  path = "//";
  drop_final_slashes(path);
  EXPECT_EQ(path, "/");
}

}  // namespace
}  // namespace scriptorium

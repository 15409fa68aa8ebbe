// SQLite's locks survive what else the process does with the file.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/api/kit/sqlite/connection.h"
#include "core/base/file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::sqlite {
namespace {

// What somebody else who wants to write these bytes of the file meets.
short lock_of_others(const std::string& file, off_t begin, off_t length) {
  const UniqueFd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  struct flock wanted{};
  wanted.l_type = F_WRLCK;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = begin;
  wanted.l_len = length;
  EXPECT_EQ(::fcntl(fd.get(), F_OFD_GETLK, &wanted), 0);
  return wanted.l_type;
}

// A database in WAL mode with a table.
class SqliteLocksTest : public ::testing::Test {
 protected:
  SqliteLocksTest() : file_(directory_.path_to("a.db")) {
    UniqueFd(::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).reset();
    first_ = *Connection::open(file_, Connection::Mode::kReadWrite, "first");
    EXPECT_TRUE(first_->execute("PRAGMA journal_mode = WAL; CREATE TABLE t(x)"));
  }

  const test::TempDir directory_;
  const std::string file_;
  std::unique_ptr<Connection> first_;
};

// Places of locks: https://sqlite.org/src/file/src/os.h (SHARED_FIRST), os_unix.c (UNIX_SHM_DMS).
TEST_F(SqliteLocksTest, TheyStayWhereTheProcessClosesAnotherDescriptorOfTheFile) {
  ASSERT_EQ(first_->number("SELECT count(*) FROM t"), 0U);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(lock_of_others(file_ + "-shm", 128, 1), F_RDLCK) << "the shared memory is in use";
    EXPECT_EQ(lock_of_others(file_, 0x40000000 + 2, 510), F_RDLCK) << "the database is in use";
    for (const char* ending : {"", "-wal", "-shm"})
      UniqueFd(::open((file_ + ending).c_str(), O_RDONLY | O_CLOEXEC)).reset();
  }
  first_.reset();
  EXPECT_EQ(lock_of_others(file_, 0x40000000 + 2, 510), F_UNLCK);
}

TEST_F(SqliteLocksTest, ConnectionsOfOneProcessExcludeEachOtherAndEndInAnyOrder) {
  auto second = Connection::open(file_, Connection::Mode::kReadWrite, "second");
  ASSERT_TRUE(second);
  ASSERT_TRUE((*second)->execute("PRAGMA busy_timeout = 1"));
  ASSERT_TRUE(first_->execute("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)"));
  EXPECT_FALSE((*second)->execute("BEGIN IMMEDIATE"));
  EXPECT_TRUE((*second)->take_error());
  ASSERT_TRUE(first_->execute("COMMIT"));
  // The one whose descriptor has the lock of the database ends first.
  first_.reset();
  ASSERT_TRUE((*second)->execute("BEGIN IMMEDIATE; INSERT INTO t VALUES(2); COMMIT"));
  second->reset();
  EXPECT_EQ(lock_of_others(file_, 0x40000000 + 2, 510), F_UNLCK);
  auto third = Connection::open(file_, Connection::Mode::kReadOnly, "third");
  ASSERT_TRUE(third);
  EXPECT_EQ((*third)->number("SELECT count(*) FROM t"), 2U);
}

}  // namespace
}  // namespace scriptorium::sqlite

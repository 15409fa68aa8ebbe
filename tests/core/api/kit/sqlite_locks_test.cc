// SQLite's locks survive what else the process does with the file.
#include <fcntl.h>
#include <gtest/gtest.h>

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

// Places of locks: https://sqlite.org/src/file/src/os.h (SHARED_FIRST), os_unix.c (UNIX_SHM_DMS).
TEST(SqliteLocksTest, TheyStayWhereTheProcessClosesAnotherDescriptorOfTheFile) {
  const test::TempDir directory;
  const std::string file = directory.path_to("a.db");
  const UniqueFd made(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  auto db = Connection::open(file, Connection::Mode::kReadWrite, "a");
  ASSERT_TRUE(db);
  ASSERT_TRUE((*db)->execute("PRAGMA journal_mode = WAL; CREATE TABLE t(x)"));
  ASSERT_EQ((*db)->number("SELECT count(*) FROM t"), 0U);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(lock_of_others(file + "-shm", 128, 1), F_RDLCK) << "the shared memory is in use";
    EXPECT_EQ(lock_of_others(file, 0x40000000 + 2, 510), F_RDLCK) << "the database is in use";
    for (const char* ending : {"", "-wal", "-shm"})
      UniqueFd(::open((file + ending).c_str(), O_RDONLY | O_CLOEXEC)).reset();
  }
  db->reset();
  EXPECT_EQ(lock_of_others(file, 0x40000000 + 2, 510), F_UNLCK);
}

TEST(SqliteLocksTest, ConnectionsOfOneProcessExcludeEachOtherAndEndInAnyOrder) {
  const test::TempDir directory;
  const std::string file = directory.path_to("a.db");
  const UniqueFd made(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  auto first = Connection::open(file, Connection::Mode::kReadWrite, "first");
  ASSERT_TRUE(first);
  ASSERT_TRUE((*first)->execute("PRAGMA journal_mode = WAL; CREATE TABLE t(x)"));
  auto second = Connection::open(file, Connection::Mode::kReadWrite, "second");
  ASSERT_TRUE(second);
  ASSERT_TRUE((*second)->execute("PRAGMA busy_timeout = 1"));
  ASSERT_TRUE((*first)->execute("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)"));
  EXPECT_FALSE((*second)->execute("BEGIN IMMEDIATE"));
  EXPECT_TRUE((*second)->take_error());
  ASSERT_TRUE((*first)->execute("COMMIT"));
  // The one whose descriptor has the lock of the database ends first.
  first->reset();
  ASSERT_TRUE((*second)->execute("BEGIN IMMEDIATE; INSERT INTO t VALUES(2); COMMIT"));
  second->reset();
  EXPECT_EQ(lock_of_others(file, 0x40000000 + 2, 510), F_UNLCK);
  auto third = Connection::open(file, Connection::Mode::kReadOnly, "third");
  ASSERT_TRUE(third);
  EXPECT_EQ((*third)->number("SELECT count(*) FROM t"), 2U);
}

}  // namespace
}  // namespace scriptorium::sqlite

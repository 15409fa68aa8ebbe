#include "core/daemon/privileges.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <pwd.h>
#include <sys/fanotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr int kReachedTheEnd = 42;

std::string own_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":"))
      return line.substr(line.find_first_not_of(" \t", key.size() + 1));
  }
  return {};
}

// There is no way back from what these tests do, so each does it in a child; its failures are
// printed, and end it with 1.
void in_a_child(const std::function<void()>& act) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    act();
    ::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : kReachedTheEnd);
  }
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state)) << "signal " << WTERMSIG(state);
  EXPECT_EQ(WEXITSTATUS(state), kReachedTheEnd) << "see above";
}

class PrivilegesTest : public testing::Test {
 protected:
  PrivilegesTest() {
    std::filesystem::permissions(dir_.path(),
                                 std::filesystem::perms(0755));  // another user is to get in
    file_ = dir_.write("spool/hash.1/job.1/script", "x");
    ::chmod(dir_.path_to("spool").c_str(), 0700);
    config_file_ = dir_.write("scriptorium.toml",
                              "cluster = \"lab\"\n[sink.null]\n[source.slurm]\nspool = \"" +
                                  dir_.path_to("spool") + "\"\n");
    ::chmod(config_file_.c_str(), 0644);
    config_.cluster = "lab";
    config_.state_dir = dir_.path_to("var/lib/state");
    for (const char* name : {"games", "daemon", "nobody"}) {
      if (const passwd* found = ::getpwnam(name); found != nullptr && ordinary_.empty()) {
        ordinary_ = found->pw_name;
        uid_ = found->pw_uid;
        gid_ = found->pw_gid;
      }
    }
  }

  static bool has_rights() {
    const auto rights = effective_capabilities();
    return ::geteuid() == 0 && rights && (*rights & kSpoolCapabilities) == kSpoolCapabilities;
  }

  Result<Privileges> separate(PrivilegesFor purpose = PrivilegesFor::kRun) const {
    return separate_privileges(all_, config_file_, purpose);
  }

  void wants_executables() {
    Value yes;
    yes.data = true;
    SourceInstance source;
    source.name = "usage";
    source.table.entries.push_back({"executables", yes});
    all_.sources.push_back(source);
  }

  uid_t owner_of(const std::string& path) const {
    struct stat s{};
    EXPECT_EQ(::lstat(dir_.path_to(path).c_str(), &s), 0) << path;
    return s.st_uid;
  }

  test::TempDir dir_;
  std::string file_;
  std::string config_file_;
  Config all_;
  CoreConfig& config_ = all_.core;
  std::string ordinary_;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
};

#define NEEDS_RIGHTS() \
  if (!has_rights())   \
  GTEST_SKIP() << "SKIPPED: run this as root, with CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH"

TEST_F(PrivilegesTest, NothingIsLeftInTheDaemonThatOpensTheSpool) {
  NEEDS_RIGHTS();
  config_.user = ordinary_;
  in_a_child([&] {
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_TRUE(privileges->separated);
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
      EXPECT_EQ(own_status(set), std::string(16, '0')) << set;
    EXPECT_EQ(own_status("NoNewPrivs"), "1");
    EXPECT_EQ(::getuid(), uid_);
    EXPECT_EQ(::getegid(), gid_);
    EXPECT_EQ(::setresuid(0, 0, 0), -1);
    EXPECT_EQ(::open(file_.c_str(), O_RDONLY | O_CLOEXEC), -1);
    EXPECT_EQ(errno, EACCES);
    auto opened =
        privileges->opener->open(dir_.path_to("spool"), {.inotify = true, .fanotify = true});
    ASSERT_TRUE(opened) << opened.error().message();
    EXPECT_EQ(opened->fanotify_problem, "");
    const auto fd = opened->access->open("hash.1/job.1/script");
    ASSERT_TRUE(fd) << fd.error().message();
    EXPECT_EQ(*read_fd(fd->get(), 10), "x");
    const Json json = Json::parse(privileges_json(*privileges));
    EXPECT_EQ(json["separated"], true);
    EXPECT_EQ(json["user"], ordinary_);
    EXPECT_EQ(json["capabilities"], Json::array());
    EXPECT_EQ(json["opener"]["pid"], privileges->opener->pid());
    EXPECT_EQ(json["opener"]["capabilities"], Json({"CAP_DAC_READ_SEARCH", "CAP_SYS_ADMIN"}));
  });
}

TEST_F(PrivilegesTest, NeitherTheDescriptorsOfTheOpenerNorItsCallsLeadToOtherFiles) {
  NEEDS_RIGHTS();
  config_.user = ordinary_;
  dir_.write("private/secret", "x");
  ::chmod(dir_.path_to("private/secret").c_str(), 0600);
  in_a_child([&] {
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_TRUE(privileges->filtered) << privileges->unfiltered_because;
    auto opened =
        privileges->opener->open(dir_.path_to("spool"), {.inotify = true, .fanotify = true});
    ASSERT_TRUE(opened) << opened.error().message();
    if (opened->access->fanotify_fd() < 0) return;  // this file system has none
    const auto refused = [](long result) { return result == -1 && errno == EPERM; };
    // A mark on a directory would bring its files, open, whenever anybody opens them.
    EXPECT_TRUE(refused(::fanotify_mark(opened->access->fanotify_fd(), FAN_MARK_ADD,
                                        FAN_OPEN | FAN_EVENT_ON_CHILD, AT_FDCWD,
                                        dir_.path_to("private").c_str())));
    EXPECT_TRUE(refused(::fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY)));
    EXPECT_TRUE(refused(::syscall(SYS_open_by_handle_at, AT_FDCWD, nullptr, O_RDONLY)));
    EXPECT_TRUE(refused(::syscall(SYS_process_vm_readv, ::getppid(), nullptr, 0, nullptr, 0, 0)));
    EXPECT_TRUE(refused(::syscall(SYS_unshare, 0)));
    EXPECT_TRUE(refused(::syscall(SYS_io_uring_setup, 0, nullptr)));
    EXPECT_TRUE(refused(::syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr)));
#if defined(__x86_64__)
    EXPECT_TRUE(refused(::syscall(0x40000000 + SYS_getpid))) << "by its x32 number";
#endif
    // Who asks the opener gets the mark that ignores, which brings nothing, and no word about what
    // there is.
    EXPECT_TRUE(opened->access->leave_out(dir_.path_to("private")));
    EXPECT_TRUE(opened->access->leave_out(dir_.path_to("nothing"))) << "it told what is not there";
    EXPECT_FALSE(opened->access->leave_out("private"));
    EXPECT_FALSE(opened->access->leave_out(dir_.path_to("private/../spool")));
    opened->access->leave_nothing_out();
    // Capture continues, and so does what the daemon starts.
    EXPECT_TRUE(opened->access->mark());
    EXPECT_EQ(std::system("exec 2>/dev/null; true"), 0);
  });
}

TEST_F(PrivilegesTest, AProgramThatTheDaemonStartsGainsNothing) {
  NEEDS_RIGHTS();
  in_a_child([&] {
    ASSERT_TRUE(separate(
        PrivilegesFor::kRefusal));  // stays root, which an execve() would make mighty again
    EXPECT_EQ(::geteuid(), 0U);
    EXPECT_NE(::system("test \"$(grep CapEff /proc/self/status | tr -d '[:space:]')\" = "
                       "CapEff:0000000000000000 || exit 1"),
              -1);
    EXPECT_EQ(::system("grep -q 'CapPrm:.0000000000000000' /proc/self/status"), 0);
  });
}

TEST_F(PrivilegesTest, AUnitMayStartItAsItsUserWithAmbientCapabilities) {
  NEEDS_RIGHTS();
  in_a_child([&] {
    // What systemd does for User= and AmbientCapabilities=.
    ASSERT_EQ(::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::setgroups(0, nullptr), 0);
    ASSERT_EQ(::setresgid(gid_, gid_, gid_), 0);
    ASSERT_EQ(::setresuid(uid_, uid_, uid_), 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> sets{};
    sets[0].effective = sets[0].permitted = sets[0].inheritable =
        static_cast<std::uint32_t>(kSpoolCapabilities);
    ASSERT_EQ(::syscall(SYS_capset, &header, sets.data()), 0);
    for (const int number : {CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH}) {
      ASSERT_EQ(::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0), 0);
    }
    config_.user = ordinary_;  // may be said, and changes nothing
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_TRUE(privileges->separated);
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
      EXPECT_EQ(own_status(set), std::string(16, '0')) << set;
    auto opened =
        privileges->opener->open(dir_.path_to("spool"), {.inotify = true, .fanotify = true});
    ASSERT_TRUE(opened) << opened.error().message();
    EXPECT_GE(opened->access->fanotify_fd(), 0) << opened->fanotify_problem;
    EXPECT_TRUE(opened->access->open("hash.1/job.1/script"));
  });
}

TEST_F(PrivilegesTest, WithoutRightsAndWithoutAUserNothingChanges) {
  in_a_child([&] {
    ASSERT_TRUE(keep_only_capabilities(0));
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_FALSE(privileges->separated);
    EXPECT_EQ(privileges->opener, nullptr);
    EXPECT_THAT(privileges->why, HasSubstr("neither CAP_SYS_ADMIN nor CAP_DAC_READ_SEARCH"));
    EXPECT_EQ(privileges->uid, ::geteuid());
    const Json json = Json::parse(privileges_json(*privileges));
    EXPECT_EQ(json["separated"], false);
    EXPECT_EQ(json["why"], privileges->why);
    EXPECT_EQ(json["opener"], nullptr);
  });
}

// ---- the executable reader

TEST_F(PrivilegesTest, TheRightToSeeExecutablesStaysWithAProcessThatDoesNothingElse) {
  const auto rights = effective_capabilities();
  if (!rights || (*rights & kExecutableCapabilities) == 0 || ::geteuid() != 0)
    GTEST_SKIP() << "SKIPPED: run this as root, with CAP_SYS_PTRACE";
  wants_executables();
  in_a_child([&] {
    ASSERT_TRUE(keep_only_capabilities(kExecutableCapabilities));
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_TRUE(privileges->separated);
    EXPECT_EQ(privileges->why, "");
    EXPECT_EQ(privileges->opener, nullptr);
    EXPECT_EQ(privileges->executables_problem, "");
    EXPECT_TRUE(privileges->filtered) << privileges->unfiltered_because;
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
      EXPECT_EQ(own_status(set), std::string(16, '0')) << set;
    ASSERT_NE(privileges->executables, nullptr);
    const HelperProcess& reader = privileges->executables->process();
    const Json json = Json::parse(privileges_json(*privileges));
    EXPECT_EQ(json["opener"], nullptr);
    EXPECT_EQ(json["executable_reader"]["pid"], reader.pid());
    EXPECT_EQ(json["executable_reader"]["capabilities"], Json({"CAP_SYS_PTRACE"}));
    ASSERT_EQ(::kill(reader.pid(), SIGKILL), 0);
    pollfd ended{reader.pidfd(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
    EXPECT_EQ(Json::parse(privileges_json(*privileges))["executable_reader"], nullptr);
  });
}

TEST_F(PrivilegesTest, WithoutTheRightToSeeExecutablesTheDropInIsNamed) {
  wants_executables();
  in_a_child([&] {
    ASSERT_TRUE(keep_only_capabilities(0));
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_EQ(privileges->executables, nullptr);
    EXPECT_THAT(privileges->executables_problem,
                HasSubstr("usage-programs.conf as zz-usage-programs.conf"));
  });
}

TEST_F(PrivilegesTest, NoProcessKeepsTheRightToSeeExecutablesUnlessASourceWantsIt) {
  in_a_child([&] {
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_EQ(privileges->executables, nullptr);
    EXPECT_EQ(privileges->executables_problem, "");
  });
}

TEST_F(PrivilegesTest, AUserThatDoesNotExistIsSaidWithTheRemedy) {
  config_.user = "no-such-user-here";
  const auto privileges = separate();
  ASSERT_FALSE(privileges);
  EXPECT_EQ(privileges.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(privileges.error().message(),
              HasSubstr(config_file_ + ": user: there is no user \"no-such-user-here\""));
  EXPECT_THAT(privileges.error().message(), HasSubstr("useradd --system"));
}

TEST_F(PrivilegesTest, AnOrdinaryUserCannotBecomeAnother) {
  config_.user = ::geteuid() == 0 ? ordinary_ : "root";
  in_a_child([&] {
    ASSERT_TRUE(keep_only_capabilities(0));
    const auto privileges = separate();
    ASSERT_FALSE(privileges);
    EXPECT_EQ(privileges.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(privileges.error().message(), HasSubstr("User=" + config_.user + " in the unit"));
  });
}

TEST_F(PrivilegesTest, ABadConfigurationIsReadOnWithoutAnyRight) {
  NEEDS_RIGHTS();
  config_.user = "no-such-user-here";
  in_a_child([&] {
    const auto privileges = separate(PrivilegesFor::kRefusal);
    ASSERT_TRUE(privileges) << privileges.error().message();
    EXPECT_EQ(own_status("CapPrm"), std::string(16, '0'));
    EXPECT_EQ(privileges->opener, nullptr);
    EXPECT_FALSE(std::filesystem::exists(dir_.path_to("var")));
  });
}

// ---- state_dir

TEST_F(PrivilegesTest, StateDirIsMadeForTheUser) {
  NEEDS_RIGHTS();
  config_.user = ordinary_;
  in_a_child([&] {
    ASSERT_TRUE(separate());
    EXPECT_EQ(owner_of("var/lib/state"), uid_);
    EXPECT_EQ(owner_of("var/lib"), 0U);
    std::ofstream(dir_.path_to("var/lib/state/lock")) << "1";
    EXPECT_EQ(owner_of("var/lib/state/lock"), uid_);
  });
}

TEST_F(PrivilegesTest, ALookMakesNothingAndSaysWhatRunWould) {
  NEEDS_RIGHTS();
  config_.user = ordinary_;
  in_a_child([&] {
    const auto privileges = separate(PrivilegesFor::kLook);
    ASSERT_TRUE(privileges);
    EXPECT_THAT(privileges->state_dir_note, HasSubstr("`run` makes it, for " + ordinary_));
    EXPECT_FALSE(std::filesystem::exists(dir_.path_to("var")));
  });
}

TEST_F(PrivilegesTest, WhatRootsDaemonLeftInStateDirIsGivenToTheUser) {
  NEEDS_RIGHTS();
  config_.user = ordinary_;
  config_.state_dir = dir_.path_to("state");
  for (const char* name : {"lock", "journal.db", "journal.db-wal", "bad.1/journal.db",
                           "in-flight/0", "archive/1.sh", "notes"}) {
    dir_.write(std::string("state/") + name, "x");
  }
  dir_.write("victim", "x");
  dir_.write("victim2", "x");
  ASSERT_EQ(::symlink("../victim", dir_.path_to("state/journal.link").c_str()), 0);
  ASSERT_EQ(::link(dir_.path_to("victim2").c_str(), dir_.path_to("state/journal.hard").c_str()), 0);
  in_a_child([&] {
    const auto privileges = separate();
    ASSERT_TRUE(privileges) << privileges.error().message();
    for (const char* name : {"", "lock", "journal.db", "journal.db-wal", "bad.1",
                             "bad.1/journal.db", "in-flight", "in-flight/0"}) {
      EXPECT_EQ(owner_of(std::string("state/") + name), uid_) << name;
    }
    for (const char* name : {"state/archive", "state/archive/1.sh", "state/notes", "victim",
                             "victim2", "state/journal.link"}) {
      EXPECT_EQ(owner_of(name), 0U) << name;
    }
  });
}

TEST_F(PrivilegesTest, ADirectoryThatIsNotOursIsNotGivenAway) {
  NEEDS_RIGHTS();
  config_.user = ordinary_;
  config_.state_dir = dir_.path_to("lib");
  dir_.write("lib/somebody/else", "x");
  in_a_child([&] {
    const auto privileges = separate();
    ASSERT_FALSE(privileges);
    EXPECT_EQ(privileges.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(privileges.error().message(), HasSubstr("holds things that are not Scriptorium's"));
    EXPECT_EQ(owner_of("lib"), 0U);
  });
  ASSERT_EQ(::chown(dir_.path_to("lib").c_str(), 54321, 54321), 0);
  in_a_child([&] { EXPECT_THAT(separate().error().message(), HasSubstr("belongs to uid 54321")); });
}

TEST_F(PrivilegesTest, AStateDirThatIsALinkIsLeftAsItIs) {
  NEEDS_RIGHTS();
  config_.user = ordinary_;
  config_.state_dir = dir_.path_to("link");
  dir_.write("real/lock", "1");
  ASSERT_EQ(::symlink("real", dir_.path_to("link").c_str()), 0);
  in_a_child([&] {
    ASSERT_TRUE(separate());
    EXPECT_EQ(owner_of("real"), 0U);
    EXPECT_EQ(owner_of("real/lock"), 0U);
  });
}

}  // namespace
}  // namespace scriptorium

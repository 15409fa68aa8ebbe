#include "core/capture/spool_opener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "core/capture/opener_protocol.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::HasSubstr;

constexpr int kPatienceMs = 30'000;
constexpr uid_t kSomebody = 54321;

bool readable_in_time(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, kPatienceMs) == 1;
}

// A line of /proc/PID/status.
std::string status_of(pid_t pid, const std::string& key) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":"))
      return line.substr(line.find_first_not_of(" \t", key.size() + 1));
  }
  return {};
}

// A spool with one entry, things beside it that nobody may reach, and a configuration that names
// it.
class SpoolOpenerTest : public testing::Test {
 protected:
  SpoolOpenerTest() {
    dir_.write("spool/hash.1/job.1/script", "x");
    dir_.write("spool2/script", "y");
    dir_.write("secret", "outside");
    EXPECT_EQ(::symlink("../secret", dir_.path_to("spool/link").c_str()), 0);
    EXPECT_EQ(::symlink("..", dir_.path_to("spool/up").c_str()), 0);
    EXPECT_EQ(::mkfifo(dir_.path_to("spool/fifo").c_str(), 0600), 0);
    write_config({"spool"});
  }

  void write_config(const std::vector<std::string>& spools) const {
    std::string text = "cluster = \"lab\"\n[sink.null]\n";
    for (const std::string& spool : spools)
      text += "[source." + spool + "]\nspool = \"" + dir_.path_to(spool) + "\"\n";
    dir_.write("scriptorium.toml", text);
  }

  OpenerOptions options(uid_t client = 0) const {
    return {.config_file = dir_.path_to("scriptorium.toml"),
            .client = {.uid = client, .groups = {client}}};
  }

  static std::unique_ptr<SpoolOpener> start(const OpenerOptions& options) {
    const auto rights = effective_capabilities();
    EXPECT_TRUE(rights);
    auto started = SpoolOpener::start(options, *rights & kSpoolCapabilities);
    EXPECT_TRUE(started) << started.error().message();
    return *std::move(started);
  }
  std::unique_ptr<SpoolOpener> start() const { return start(options()); }

  std::unique_ptr<SpoolAccess> access_to(SpoolOpener& opener,
                                         Notifications wanted = {false, false}) const {
    auto opened = opener.open(spool(), wanted);
    EXPECT_TRUE(opened) << opened.error().message();
    return std::move(opened->access);
  }

  std::string spool() const { return dir_.path_to("spool"); }

  test::TempDir dir_;
};

TEST_F(SpoolOpenerTest, ShowsASpoolAsDirectAccessDoes) {
  const auto opener = start();
  const auto access = access_to(*opener);
  const auto direct = open_direct_access(spool(), {false, false});
  ASSERT_TRUE(direct);
  EXPECT_EQ(access->root(), direct->access->root());
  for (const std::string path : {"", "hash.1", "hash.1/job.1/script", "link", "fifo"}) {
    const auto here = access->stat(path);
    const auto there = direct->access->stat(path);
    ASSERT_TRUE(here && there) << path;
    EXPECT_EQ(here->inode, there->inode) << path;
    EXPECT_EQ(here->mode, there->mode) << path;
    EXPECT_EQ(here->mtime_ns, there->mtime_ns) << path;
  }
  const auto names_of = [](SpoolAccess& from) {
    std::map<std::string, std::pair<std::uint64_t, bool>> names;
    const auto list = from.list("");
    for (const SpoolName& name : *list) names[name.name] = {name.inode, name.is_directory};
    return names;
  };
  EXPECT_EQ(names_of(*access), names_of(*direct->access));
  const auto fd = access->open("hash.1/job.1/script");
  ASSERT_TRUE(fd) << fd.error().message();
  EXPECT_EQ(*read_fd(fd->get(), 10), "x");
  EXPECT_EQ(::write(fd->get(), "z", 1), -1) << "it is open for reading only";
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0)
      << "a program that the daemon starts would inherit it";
  EXPECT_EQ(access->open("none").error().kind(), ErrorKind::kVanished);
  EXPECT_EQ(access->list("hash.7").error().kind(), ErrorKind::kVanished);
}

TEST_F(SpoolOpenerTest, OpensAnEntryWithOneRequest) {
  const std::string entry = spool() + "/hash.1/job.1/";
  EXPECT_EQ(::symlink("script", (entry + "link").c_str()), 0);
  EXPECT_EQ(::mkfifo((entry + "fifo").c_str(), 0600), 0);
  EXPECT_EQ(::mkdir((entry + "directory").c_str(), 0700), 0);
  for (std::size_t i = 0; i < 2 * kMostOpenedNames; ++i)
    dir_.write("spool/hash.1/job.1/file" + std::to_string(i), "y");
  const auto opener = start();
  const auto direct = open_direct_access(spool(), {false, false});
  ASSERT_TRUE(direct);
  const auto opened_access = access_to(*opener);
  for (SpoolAccess* access : {opened_access.get(), direct->access.get()}) {
    const auto names = access->list_open("hash.1/job.1");
    ASSERT_TRUE(names) << names.error().message();
    EXPECT_EQ(names->size(), 4 + 2 * kMostOpenedNames);
    std::size_t opened = 0;
    for (const auto& [name, fd] : *names) {
      if (!fd) continue;
      ++opened;
      EXPECT_TRUE(name.name == "script" || name.name.starts_with("file")) << name.name;
      const auto stat = stat_fd(fd.get());
      ASSERT_TRUE(stat);
      EXPECT_EQ(stat->inode, name.inode) << name.name << " came with another file";
      EXPECT_EQ(*read_fd(fd.get(), 10), name.name == "script" ? "x" : "y");
      EXPECT_EQ(::write(fd.get(), "z", 1), -1) << "it is open for reading only";
      EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
    }
    EXPECT_EQ(opened, kMostOpenedNames) << "as many as there may be";
    EXPECT_EQ(access->list_open("hash.7").error().kind(), ErrorKind::kVanished);
    EXPECT_FALSE(access->list_open("..")) << "out of the spool";
    EXPECT_FALSE(access->list_open("link"));
  }
}

TEST_F(SpoolOpenerTest, ReachesNothingOutsideTheSpool) {
  const auto opener = start();
  const auto access = access_to(*opener, {.inotify = true, .fanotify = false});
  for (const std::string path :
       {"../secret", "link", "up/secret", "hash.1/../../secret", "/etc/passwd", "hash.1/../..",
        "..", "/", "../spool2/script", "up", "hash.1/job.1/script/../script"}) {
    EXPECT_FALSE(access->open(path)) << path;
    EXPECT_FALSE(access->list(path)) << path;
    EXPECT_FALSE(access->watch(path, IN_CREATE)) << path;
    if (path != "link" && path != "up") {
      EXPECT_FALSE(access->stat(path)) << path;  // of a link: the link itself
    }
  }
  for (const std::string path : {"fifo", "hash.1", ""}) {
    const auto fd = access->open(path);
    ASSERT_FALSE(fd) << path;
    EXPECT_EQ(fd.error().kind(), ErrorKind::kPermanent) << fd.error().message();
  }
  EXPECT_TRUE(access->open("hash.1/job.1/script")) << "it goes on with what is allowed";
}

TEST_F(SpoolOpenerTest, OpensNoRootButTheConfiguredSpoolsAndWhatIsBeneath) {
  const auto opener = start();
  for (const std::string& root : {std::string("/"), std::string("/etc"), dir_.path(),
                                  dir_.path_to("spool2"), spool() + "/../secret", spool() + "/..",
                                  spool() + "2", std::string("relative"), std::string()}) {
    const auto opened = opener->open(root, {false, false});
    ASSERT_FALSE(opened) << root;
    EXPECT_EQ(opened.error().kind(), ErrorKind::kPermanent)
        << root << ": " << opened.error().message();
  }
  EXPECT_TRUE(opener->open(spool() + "/", {false, false}));
  auto beneath = opener->open(spool() + "/hash.1/job.1", {false, false});
  ASSERT_TRUE(beneath) << beneath.error().message();
  EXPECT_TRUE(beneath->access->open("script"));
  EXPECT_FALSE(opener->open(spool() + "/up/spool2", {false, false}))
      << "a link in the spool leads out";
  EXPECT_EQ(opener->open(spool() + "/none", {false, false}).error().kind(), ErrorKind::kVanished);
}

TEST_F(SpoolOpenerTest, WhatIsNoConfiguredSpoolIsOpenedByOnesOwnRights) {
  const auto opener = start();
  auto opened =
      open_spool(opener.get(), dir_.path_to("spool2"), {.inotify = false, .fanotify = false});
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_TRUE(opened->access->open("script"));
}

TEST_F(SpoolOpenerTest, LearnsOfASpoolThatAReloadBringsIn) {
  const auto opener = start();
  ASSERT_TRUE(opener->open(spool(), {false, false}));
  ASSERT_FALSE(opener->open(dir_.path_to("spool2"), {false, false}));
  write_config({"spool", "spool2"});
  EXPECT_TRUE(opener->open(dir_.path_to("spool2"), {false, false}));
}

TEST_F(SpoolOpenerTest, ABadConfigurationOpensNothingNew) {
  const auto opener = start();
  ASSERT_TRUE(opener->open(spool(), {false, false}));
  dir_.write("scriptorium.toml", "cluster = 1\n[source.x]\nspool = \"/etc\"\n");
  const auto opened = opener->open("/etc", {false, false});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(opened.error().message(), HasSubstr("scriptorium.toml:1"));
  EXPECT_TRUE(opener->open(spool(), {false, false})) << "what it knew stays";
}

TEST_F(SpoolOpenerTest, DoesNotBelieveAConfigurationThatItsClientMayWrite) {
  ASSERT_EQ(::chmod(dir_.path_to("scriptorium.toml").c_str(), 0666), 0);
  const auto refused = start(options(kSomebody))->open(spool(), {false, false});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(refused.error().message(),
              HasSubstr(dir_.path_to("scriptorium.toml") + " can be written by uid 54321"));

  ASSERT_EQ(::chmod(dir_.path_to("scriptorium.toml").c_str(), 0644), 0);
  EXPECT_TRUE(start(options(kSomebody))->open(spool(), {false, false}));

  dir_.write("plugins.d/10-more.toml", "[source.more]\nspool = \"/etc\"\n");
  ASSERT_EQ(::chmod(dir_.path_to("plugins.d/10-more.toml").c_str(), 0666), 0);
  const auto more = start(options(kSomebody))->open(spool(), {false, false});
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message(), HasSubstr("10-more.toml can be written"));

  ASSERT_EQ(::chmod(dir_.path_to("plugins.d/10-more.toml").c_str(), 0644), 0);
  ASSERT_EQ(::chmod(dir_.path_to("plugins.d").c_str(), 0777), 0);
  EXPECT_FALSE(start(options(kSomebody))->open(spool(), {false, false}))
      << "he could put a file there";
}

TEST_F(SpoolOpenerTest, DoesNotOpenASpoolThatItsClientCouldExchangeForAnotherDirectory) {
  dir_.write("open/spool3/script", "z");
  write_config({"open/spool3"});
  dir_.write("scriptorium.toml", "cluster = \"lab\"\n[sink.null]\n[source.x]\nspool = \"" +
                                     dir_.path_to("open/spool3") + "\"\n");
  ASSERT_TRUE(start(options(kSomebody))->open(dir_.path_to("open/spool3"), {false, false}));
  ASSERT_EQ(::chmod(dir_.path_to("open").c_str(), 0777), 0);
  const auto opened = start(options(kSomebody))->open(dir_.path_to("open/spool3"), {false, false});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(opened.error().message(),
              HasSubstr(dir_.path_to("open") + " can be written by uid 54321"));
}

TEST_F(SpoolOpenerTest, ListsADirectoryThatNoPacketCouldHold) {
  constexpr int kNames = 20'000;
  const std::string pad(60, 'n');
  std::filesystem::create_directories(dir_.path_to("spool/many"));
  std::set<std::string> wanted;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = pad + std::to_string(i);
    UniqueFd(
        ::open(dir_.path_to("spool/many/" + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    wanted.insert(name);
  }
  const auto opener = start();
  const auto access = access_to(*opener);
  const auto names = access->list("many");
  ASSERT_TRUE(names) << names.error().message();
  EXPECT_EQ(names->size(), wanted.size());
  for (const SpoolName& name : *names) wanted.erase(name.name);
  EXPECT_TRUE(wanted.empty()) << wanted.size() << " names are missing";
  EXPECT_TRUE(access->stat("many")) << "questions and answers still belong together";
}

TEST_F(SpoolOpenerTest, HandsOverNotificationsThatItsClientCanRead) {
  const auto opener = start();
  const auto rights = effective_capabilities();
  const bool fanotify = (*rights & capability_bit(21)) != 0;  // CAP_SYS_ADMIN
  const auto opened = opener->open(spool(), {.inotify = true, .fanotify = true});
  ASSERT_TRUE(opened) << opened.error().message();
  SpoolAccess& access = *opened->access;
  ASSERT_GE(access.inotify_fd(), 0) << opened->inotify_problem;
  const auto watch = access.watch("hash.1", IN_CREATE);
  ASSERT_TRUE(watch) << watch.error().message();
  dir_.write("spool/hash.1/job.11", "new");
  ASSERT_TRUE(readable_in_time(access.inotify_fd()));
  alignas(inotify_event) std::array<char, 4096> buffer{};
  ASSERT_GT(::read(access.inotify_fd(), buffer.data(), buffer.size()), 0);
  const auto* event = reinterpret_cast<const inotify_event*>(buffer.data());
  EXPECT_EQ(event->wd, *watch);
  EXPECT_STREQ(event->name, "job.11");
  access.unwatch(*watch);
  if (!fanotify) {
    EXPECT_LT(access.fanotify_fd(), 0);
    EXPECT_THAT(opened->fanotify_problem, HasSubstr("CAP_SYS_ADMIN"));
    EXPECT_FALSE(access.mark());
    return;
  }
  ASSERT_GE(access.fanotify_fd(), 0) << opened->fanotify_problem;
  EXPECT_TRUE(access.mark());
  EXPECT_TRUE(readable_in_time(access.fanotify_fd())) << "the file above was closed after writing";
}

TEST_F(SpoolOpenerTest, ForgetsRootsThatAreNotUsedAnyMore) {
  const auto opener = start();
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(opener->open(spool(), {.inotify = true, .fanotify = false})) << i;
  std::vector<std::unique_ptr<SpoolAccess>> many;
  for (std::size_t i = 0; i < opener::kMostRoots; ++i) many.push_back(access_to(*opener));
  const auto one_more = opener->open(spool(), {false, false});
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().kind(), ErrorKind::kExhausted);
  many.pop_back();
  EXPECT_TRUE(opener->open(spool(), {false, false}));
}

TEST_F(SpoolOpenerTest, AnswersManyThreadsEachItsOwn) {
  const auto opener = start();
  const auto access = access_to(*opener);
  const std::uint64_t directory = access->stat("hash.1")->inode;
  const std::uint64_t file = access->stat("hash.1/job.1/script")->inode;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 1000; ++i) {
          const auto stat = access->stat(t % 2 == 0 ? "hash.1" : "hash.1/job.1/script");
          if (!stat || stat->inode != (t % 2 == 0 ? directory : file)) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

// ---- the process

TEST_F(SpoolOpenerTest, KeepsNothingButItsTwoCapabilities) {
  const auto opener = start();
  std::ostringstream kept;
  kept << std::hex << opener->capabilities();
  EXPECT_THAT(status_of(opener->pid(), "CapEff"), testing::EndsWith(kept.str()));
  EXPECT_EQ(status_of(opener->pid(), "CapPrm"), status_of(opener->pid(), "CapEff"));
  EXPECT_EQ(status_of(opener->pid(), "CapInh"), std::string(16, '0'));
  EXPECT_EQ(status_of(opener->pid(), "CapAmb"), std::string(16, '0'));
  EXPECT_EQ(status_of(opener->pid(), "NoNewPrivs"), "1");
#ifndef __SANITIZE_THREAD__  // which brings a thread of its own
  EXPECT_EQ(status_of(opener->pid(), "Threads"), "1");
#endif
  EXPECT_EQ(status_of(opener->pid(), "Name"), "spool-opener");
}

TEST_F(SpoolOpenerTest, KeepsNoDescriptorOfItsParent) {
  if (::geteuid() != 0)
    GTEST_SKIP()
        << "SKIPPED: only root may look at the descriptors of a process that is not dumpable";
  const UniqueFd leak(::open(
      "/dev/null", O_RDONLY));  // NOLINT(android-cloexec-open): what a library may have left open
  const auto opener = start();
  std::set<std::string> descriptors;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(opener->pid()) + "/fd")) {
    descriptors.insert(entry.path().filename());
  }
  EXPECT_EQ(descriptors, (std::set<std::string>{"0", "1", "2", "3"}));
}

TEST_F(SpoolOpenerTest, LeavesTheSignalsOfAStopToTheDaemon) {
  const auto opener = start();
  const auto access = access_to(*opener);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ASSERT_EQ(::kill(opener->pid(), signal), 0);
  EXPECT_TRUE(access->stat(""));
}

TEST_F(SpoolOpenerTest, EndsWithItsClient) {
  auto opener = start();
  const pid_t pid = opener->pid();
  ASSERT_EQ(::kill(pid, 0), 0);
  opener.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(SpoolOpenerTest, EveryRequestFailsInWordsOnceItHasDied) {
  const auto opener = start();
  const auto access = access_to(*opener);
  ASSERT_EQ(::kill(opener->pid(), SIGKILL), 0);
  ASSERT_TRUE(readable_in_time(opener->pidfd()));
  for (int i = 0; i < 2; ++i) {
    const auto stat = access->stat("");
    ASSERT_FALSE(stat);
    EXPECT_EQ(stat.error().kind(), ErrorKind::kTransient) << "the entry has not vanished";
    EXPECT_EQ(stat.error().message(), "the spool opener has ended");
  }
  EXPECT_FALSE(access->list(""));
  EXPECT_FALSE(opener->open(spool(), {false, false}));
}

// ---- what a hijacked client might send

class SpoolOpenerPacketTest : public SpoolOpenerTest {
 protected:
  SpoolOpenerPacketTest() {
    std::array<int, 2> pair{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
    ours_.reset(pair[0]);
    theirs_.reset(pair[1]);
    options_ = options();
    server_ = std::jthread([this] { serve_spool(theirs_.get(), options_); });
  }
  ~SpoolOpenerPacketTest() override { ours_.reset(); }

  void send(std::string_view bytes) const {
    ASSERT_EQ(::send(ours_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  opener::Answer receive(std::string* text = nullptr) const {
    std::string buffer(opener::kMostAnswerBytes, '\0');
    EXPECT_TRUE(readable_in_time(ours_.get())) << "no answer";
    const ssize_t size = ::recv(ours_.get(), buffer.data(), buffer.size(), 0);
    EXPECT_GT(size, 0) << "the opener has ended";
    std::string_view bytes =
        std::string_view(buffer).substr(0, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    opener::Answer answer;
    EXPECT_TRUE(opener::take(bytes, answer));
    if (text != nullptr) *text = bytes;
    return answer;
  }
  static std::string packet(opener::Operation operation, std::string_view path,
                            std::uint32_t root = 0, std::uint32_t argument = 0) {
    opener::Request request;
    request.sequence = 7;
    request.operation = static_cast<std::uint32_t>(operation);
    request.root = root;
    request.argument = argument;
    request.path_bytes = static_cast<std::uint32_t>(path.size());
    std::string bytes;
    opener::append(bytes, request);
    bytes.append(path);
    return bytes;
  }
  void expect_refused(std::string_view bytes, const std::string& why) const {
    send(bytes);
    std::string text;
    EXPECT_EQ(receive(&text).outcome, static_cast<std::uint32_t>(opener::Outcome::kError)) << why;
    EXPECT_THAT(text, HasSubstr(why));
  }
  void expect_alive() const {
    send(packet(opener::Operation::kOpenRoot, spool()));
    std::string text;
    const opener::Answer answer = receive(&text);
    EXPECT_EQ(answer.outcome, static_cast<std::uint32_t>(opener::Outcome::kDone)) << text;
    EXPECT_EQ(answer.sequence, 7U);
    send(packet(opener::Operation::kCloseRoot, "", static_cast<std::uint32_t>(answer.number)));
    EXPECT_EQ(receive().outcome, static_cast<std::uint32_t>(opener::Outcome::kDone));
  }

  UniqueFd ours_;
  UniqueFd theirs_;
  OpenerOptions options_;
  std::jthread server_;
};

TEST_F(SpoolOpenerPacketTest, RefusesWhatIsNoRequestAndGoesOn) {
  using opener::Operation;
  expect_refused("", "not the size");
  expect_refused("x", "not the size");
  expect_refused(std::string(23, '\0'), "not the size");
  expect_refused(std::string(100, '\0'), "no request");
  expect_refused(std::string(60'000, 'x'), "not the size");
  std::string longer = packet(Operation::kOpenRoot, spool());
  expect_refused(longer + "/..", "another length");
  expect_refused(std::string_view(longer).substr(0, longer.size() - 1), "another length");
  expect_refused(packet(Operation::kOpenRoot, std::string_view("/etc\0/x", 7)), "NUL");
  expect_refused(packet(Operation::kOpenRoot, std::string(5000, 'a')), "not the size");
  expect_refused(packet(Operation::kOpenRoot, "/" + std::string(4094, 'a')), "aaaa");
  expect_refused(packet(Operation::kOpenRoot, spool(), 0, 4), "unknown notifications");
  expect_refused(packet(Operation::kStat, "", 0), "an unknown root");
  expect_refused(packet(Operation::kStat, "", 0xFFFFFFFF), "an unknown root");
  expect_alive();
}

TEST_F(SpoolOpenerPacketTest, RefusesWhatARootDoesNotOffer) {
  using opener::Operation;
  send(packet(Operation::kOpenRoot, spool(), 0, opener::kWantInotify));
  const auto root = static_cast<std::uint32_t>(receive().number);
  expect_refused(packet(static_cast<Operation>(0), "", root), "an unknown operation");
  expect_refused(packet(static_cast<Operation>(99), "", root), "an unknown operation");
  expect_refused(packet(Operation::kMark, "", root), "without fanotify");
  expect_refused(packet(Operation::kWatch, "", root, 0), "a mask");
  expect_refused(packet(Operation::kWatch, "", root, IN_CREATE | IN_ONESHOT), "a mask");
  expect_refused(packet(Operation::kWatch, "", root, IN_MASK_ADD), "a mask");
  expect_refused(packet(Operation::kOpen, "a/../b", root), "leads out");
  expect_refused(packet(Operation::kOpen, "/etc/passwd", root), "leads out");
  send(packet(Operation::kCloseRoot, "", root));
  EXPECT_EQ(receive().outcome, static_cast<std::uint32_t>(opener::Outcome::kDone));
  expect_refused(packet(Operation::kCloseRoot, "", root), "an unknown root");
  expect_refused(packet(Operation::kOpen, "hash.1/job.1/script", root), "an unknown root");
  expect_alive();
}

TEST_F(SpoolOpenerPacketTest, OutlivesRandomRequests) {
  std::mt19937 random(20261121);  // NOLINT: the same ones in every run
  const auto number = [&](std::uint32_t below) {
    return static_cast<std::uint32_t>(random() % below);
  };
  constexpr int kPackets = 3000;
  for (int i = 0; i < kPackets; ++i) {
    std::string path;
    static constexpr std::array<const char*, 8> kParts{"..",     "hash.1", "/",  "job.1",
                                                       "script", "link",   "up", "\xff"};
    for (std::uint32_t parts = number(5); parts > 0; --parts)
      path += std::string(kParts.at(number(kParts.size()))) + "/";
    std::string bytes = packet(static_cast<opener::Operation>(number(10)), path, number(3),
                               number(2) == 0 ? number(8) : random());
    if (number(4) == 0)
      bytes.at(number(static_cast<std::uint32_t>(bytes.size()))) = static_cast<char>(number(256));
    if (number(8) == 0) bytes.resize(number(static_cast<std::uint32_t>(bytes.size()) + 40));
    send(bytes);
    // A list may have several answers; a descriptor that came along is closed by the kernel, as
    // there is no room for it.
    while (receive().outcome == static_cast<std::uint32_t>(opener::Outcome::kMore)) {
    }
    if (HasFailure()) FAIL() << "at packet " << i;
  }
}

TEST_F(SpoolOpenerPacketTest, KeepsNoDescriptorThatItIsSent) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const UniqueFd reader(pipe[0]);
  UniqueFd writer(pipe[1]);
  std::string bytes = packet(opener::Operation::kOpenRoot, spool());
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = writer.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ASSERT_GT(::sendmsg(ours_.get(), &message, MSG_NOSIGNAL), 0);
  EXPECT_EQ(receive().outcome, static_cast<std::uint32_t>(opener::Outcome::kError));
  writer.reset();
  ASSERT_TRUE(readable_in_time(reader.get()));
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0) << "somebody still holds the other end";
  expect_alive();
}

}  // namespace
}  // namespace scriptorium

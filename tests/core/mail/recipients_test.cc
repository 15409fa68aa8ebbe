#include "core/mail/recipients.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

#include "core/base/file.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::mail {
namespace {

using namespace std::literals;
using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class RecipientsTest : public ::testing::Test {
 protected:
  RecipientsTest() {
    EXPECT_EQ(chmod(directory_.path().c_str(), 0755), 0);
    directory_.make_directory("anna");
    user_ = {"anna", kNobody, kNobody, directory_.path_to("anna")};
    sources_.account = [this](const std::string& login) -> Result<std::optional<UserRecord>> {
      if (login == "broken") return Error(ErrorKind::kTransient, "no name service");
      if (login == "gone") return std::optional<UserRecord>{};
      UserRecord user = user_;
      user.name = login;
      if (login == "daemon") user.uid = 999;
      return std::optional(user);
    };
    sources_.home_file = [](const UserRecord&, const std::string&, std::chrono::milliseconds,
                            std::vector<pid_t>&) { return home_file_; };
    sources_.most = test::kPatience;
    home_file_ = {HomeFile::Kind::kAbsent, {}};
  }
  Recipients recipients() {
    auto result = Recipients::read(options_, sources_);
    EXPECT_TRUE(result) << result.error().message();
    return *std::move(result);
  }
  Recipient find(const std::string& login) { return recipients().find(login); }
  std::string why_not(const std::string& login) {
    const Recipient result = find(login);
    EXPECT_EQ(result.address, "") << login;
    return result.why_not;
  }
  std::string problem() {
    const auto result = Recipients::read(options_, sources_);
    if (result) return "";
    EXPECT_EQ(result.error().kind(), ErrorKind::kInvalidConfig);
    return result.error().message();
  }
  void set_command(const std::string& lines) {
    options_.address_command = directory_.write("address", "#!/bin/sh\n" + lines + "\n");
    EXPECT_EQ(chmod(options_.address_command.c_str(), 0755), 0);
  }

  static HomeFile home_file_;  // what the sources say
  test::TempDir directory_;
  UserRecord user_;
  RecipientOptions options_;
  RecipientSources sources_;
};
HomeFile RecipientsTest::home_file_;

TEST_F(RecipientsTest, TheAddressIsTheLoginWithTheDomainIfThereIsOne) {
  EXPECT_EQ(find("anna").address, "anna");
  EXPECT_EQ(find("anna").why_not, "");
  options_.domain = "example.org";
  EXPECT_EQ(find("anna").address, "anna@example.org");
  EXPECT_EQ(why_not("anna@other"), "bad address");
}

TEST_F(RecipientsTest, OnlyAccountsOfPeopleGetMail) {
  EXPECT_EQ(why_not("gone"), "no account");
  EXPECT_EQ(why_not("daemon"), "system account");
  EXPECT_EQ(find("broken").detail, "no name service");
  EXPECT_EQ(why_not("broken"), "account not found out");
  for (const auto& login : {"-bp"s, "|cmd"s, "../etc"s, "a b"s, "a\nb"s, ""s, "a\0"s})
    EXPECT_EQ(why_not(login), "no account") << login;
  sources_.account = RecipientSources().account;
  EXPECT_EQ(why_not("root"), "system account");
  EXPECT_EQ(why_not("no-such-login"), "no account");
}

TEST_F(RecipientsTest, FilesSayWhoGetsNoMailWhichAddressAndWhichLanguage) {
  options_.no_mail_file =
      directory_.write("no-mail", "# nobody of these\n\nbob # left\r\nbob\n carl");
  options_.addresses_file =
      directory_.write("addresses", "anna \t a.b@example.org\r\ndora dora@example.net # new\n");
  options_.languages_file = directory_.write("languages", "dora de\nemil pt-BR");
  options_.domain = "example.com";
  EXPECT_EQ(why_not("bob"), "opted out");
  EXPECT_EQ(why_not("carl"), "opted out");
  EXPECT_EQ(find("anna").address, "a.b@example.org");
  EXPECT_EQ(find("anna").language, "");
  EXPECT_EQ(find("dora").address, "dora@example.net");
  EXPECT_EQ(find("dora").language, "de");
  EXPECT_EQ(find("emil").address, "emil@example.com");
  EXPECT_EQ(find("emil").language, "pt-BR");
}

TEST_F(RecipientsTest, AWrongLineIsNamedWithItsFileAndNumber) {
  const auto with = [this](std::string RecipientOptions::* file, const std::string& text) {
    options_ = {};
    options_.*file = directory_.write("file", "# first\n" + text + "\n");
    const std::string message = problem();
    const std::string prefix = directory_.path_to("file") + ":2: ";
    EXPECT_TRUE(message.starts_with(prefix)) << message;
    return message.substr(std::min(prefix.size(), message.size()));
  };
  constexpr auto kNoMail = &RecipientOptions::no_mail_file;
  constexpr auto kAddresses = &RecipientOptions::addresses_file;
  constexpr auto kLanguages = &RecipientOptions::languages_file;
  EXPECT_EQ(with(kNoMail, "anna b"), "only a login is allowed; given: \"anna b\"");
  EXPECT_EQ(with(kNoMail, "a/b"), "not a login: \"a/b\"");
  EXPECT_EQ(with(kAddresses, "anna"), "needs a login and an address; given: \"anna\"");
  EXPECT_EQ(with(kAddresses, "anna |cmd"), "needs a login and an address; given: \"anna |cmd\"");
  EXPECT_EQ(with(kAddresses, "anna a@b, c@d"),
            "needs a login and an address; given: \"anna a@b, c@d\"");
  EXPECT_EQ(with(kAddresses, "-bp a@b"), "not a login: \"-bp\"");
  EXPECT_EQ(with(kLanguages, "anna ../de"), "needs a login and a language; given: \"anna ../de\"");
  options_ = {};
  options_.addresses_file = directory_.write("file", "anna a@b\nbob b@b\nanna c@d\n");
  EXPECT_EQ(problem(), options_.addresses_file + ":3: second line for anna");
  options_.addresses_file = directory_.path_to("none");
  EXPECT_THAT(problem(), HasSubstr(directory_.path_to("none")));
}

TEST_F(RecipientsTest, TheCommandIsAskedForALoginThatTheTableDoesNotHave) {
  set_command("[ $# = 1 ] && echo \"$1.$(env | grep -c HOME)@example.org\"");
  options_.addresses_file = directory_.write("addresses", "bob bob@example.net\n");
  options_.domain = "example.com";
  EXPECT_EQ(find("anna").address, "anna.0@example.org") << "has no HOME";
  EXPECT_EQ(find("bob").address, "bob@example.net");
}

TEST_F(RecipientsTest, ACommandWithoutExactlyOneAddressIsNotReplacedByTheDomain) {
  options_.domain = "example.org";
  const auto refusal = [this](const std::string& lines) {
    set_command(lines);
    const Recipient result = find("anna");
    EXPECT_EQ(result.address, "") << lines;
    return result.why_not + ": " + result.detail;
  };
  EXPECT_EQ(refusal("echo a@b; echo c@d"),
            "address command failed: address: printed more than one line");
  EXPECT_EQ(refusal("true"), "address command failed: address: printed nothing");
  EXPECT_EQ(refusal("echo a@b; echo no server >&2; exit 1"),
            "address command failed: address: exit status 1: no server");
  EXPECT_EQ(refusal("echo 'a@b, c@d'"), "bad address: \"a@b, c@d\"");
  EXPECT_EQ(refusal("echo -bp"), "bad address: \"-bp\"");
  options_.address_command = directory_.path_to("none");
  EXPECT_EQ(why_not("anna"), "address command failed");
}

TEST_F(RecipientsTest, ACommandThatHangsTenTimesIsNotAskedAgain) {
  const std::string calls = directory_.path_to("calls");
  set_command("echo >>" + calls + "; sleep 1000");
  sources_.most = 300ms;
  Recipients recipients = this->recipients();
  EXPECT_EQ(recipients.find("anna").detail, "address: no answer in time; killed");
  for (int i = 0; i < 11; ++i) EXPECT_EQ(recipients.find("anna").why_not, "address command failed");
  EXPECT_EQ(recipients.find("anna").detail, "not asked: it did not answer too often");
  EXPECT_LE(directory_.read("calls").size(), 10U);
}

TEST_F(RecipientsTest, AFileInTheHomeOptsOutOrIn) {
  using Kind = HomeFile::Kind;
  const auto with = [this](Kind kind) {
    home_file_.kind = kind;
    return find("anna").why_not;
  };
  EXPECT_EQ(with(Kind::kThere), "opted out");
  EXPECT_EQ(with(Kind::kAbsent), "");
  options_.opt_in = true;
  EXPECT_EQ(with(Kind::kThere), "");
  EXPECT_EQ(with(Kind::kAbsent), "not opted in");
  for (const bool opt_in : {false, true}) {
    options_.opt_in = opt_in;
    EXPECT_EQ(with(Kind::kNoAnswer), "home does not answer");
    EXPECT_EQ(with(Kind::kClosed), "home is closed");
    EXPECT_EQ(with(Kind::kNotOwner), "home not asked: not root");
    user_.home = "";
    EXPECT_EQ(find("anna").why_not, opt_in ? "not opted in" : "");
    user_.home = directory_.path_to("anna");
  }
}

TEST_F(RecipientsTest, AfterTenHomesThatDoNotAnswerNoMoreAreAsked) {
  home_file_ = {HomeFile::Kind::kNoAnswer, "silent"};
  Recipients recipients = this->recipients();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(recipients.find("anna").detail, "silent");
  home_file_.kind = HomeFile::Kind::kAbsent;
  EXPECT_EQ(recipients.find("anna").why_not, "home does not answer");
  EXPECT_EQ(recipients.find("anna").detail, "not asked: too many homes did not answer");
}

// With real children that become another user.
class HomeTest : public RecipientsTest {
 protected:
  HomeTest() { sources_.home_file = &find_in_home; }
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  }
  // A file of anna's, in folders that only she may enter.
  void write_as_anna(const std::string& name) {
    directory_.write("anna/.scriptorium/" + name, "");
    for (const char* path : {"anna", "anna/.scriptorium"}) {
      EXPECT_EQ(::chown(directory_.path_to(path).c_str(), kNobody, kNobody), 0);
      EXPECT_EQ(::chmod(directory_.path_to(path).c_str(), 0700), 0);
    }
  }
  static bool no_child_left() { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }
  std::vector<pid_t> stuck_;
};

TEST_F(HomeTest, AFileOfTheUsersOwnOptsOut) {
  EXPECT_EQ(find("anna").why_not, "");
  write_as_anna("no-mail");
  EXPECT_EQ(why_not("anna"), "opted out");
  EXPECT_EQ(find("anna").detail, directory_.path_to("anna/.scriptorium/no-mail"));
  options_.opt_in = true;
  EXPECT_EQ(why_not("anna"), "not opted in");
  write_as_anna("mail");
  EXPECT_EQ(find("anna").address, "anna");
  EXPECT_TRUE(no_child_left());
}

TEST_F(HomeTest, AHomeThatIsNotThereOptsNeitherOutNorIn) {
  user_.home = directory_.path_to("none/none");
  EXPECT_EQ(find("anna").address, "anna");
  user_.home = directory_.write("file", "");
  EXPECT_EQ(find("anna").address, "anna");
  options_.opt_in = true;
  EXPECT_EQ(why_not("anna"), "not opted in");
}

TEST_F(HomeTest, ALinkThatLeadsNowhereIsThere) {
  directory_.make_directory("anna/.scriptorium");
  ASSERT_EQ(::symlink("/none", directory_.path_to("anna/.scriptorium/no-mail").c_str()), 0);
  EXPECT_EQ(why_not("anna"), "opted out");
}

TEST_F(HomeTest, AHomeIsReadWithTheRightsOfItsUserOnly) {
  directory_.write("anna/.scriptorium/no-mail", "");
  ASSERT_EQ(::chmod(directory_.path_to("anna").c_str(), 0700), 0);  // of root
  EXPECT_EQ(why_not("anna"), "home is closed");
  EXPECT_THAT(find("anna").detail, HasSubstr("no-mail: permission denied"));
}

TEST_F(HomeTest, AHomeIsReadWithTheUsersGroups) {
  const auto users = find_group("users");
  ASSERT_TRUE(users && *users);
  directory_.write("anna/.scriptorium/no-mail", "");
  ASSERT_EQ(::chown(directory_.path_to("anna").c_str(), 0, (*users)->gid), 0);
  ASSERT_EQ(::chmod(directory_.path_to("anna").c_str(), 0750), 0);
  const gid_t ours = (*users)->gid;
  ASSERT_EQ(::setgroups(1, &ours), 0);
  EXPECT_EQ(why_not("anna"), "home is closed") << "this process's groups do not count";
  ASSERT_EQ(::setgroups(0, nullptr), 0);
  user_.gid = (*users)->gid;
  EXPECT_EQ(why_not("anna"), "opted out");
}

TEST_F(HomeTest, AProcessThatIsNotRootReadsOnlyTheHomeOfItsUser) {
  write_as_anna("no-mail");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
        ::setresuid(kNobody, kNobody, kNobody) != 0)
      ::_exit(9);
    const bool own = find("anna").why_not == "opted out";
    user_.uid = 12345;
    const bool other = find("anna").why_not == "home not asked: not root";
    ::_exit((own ? 1 : 0) + (other ? 2 : 0));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

// A file system whose server never answers.
class SilentHome {
 public:
  explicit SilentHome(std::string path)
      : path_(std::move(path)), server_(::open("/dev/fuse", O_RDWR)) {
    const std::string options =
        "fd=" + std::to_string(server_.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
    is_mounted_ = ::mount("silent", path_.c_str(), "fuse", 0, options.c_str()) == 0;
  }
  SilentHome(const SilentHome&) = delete;
  SilentHome& operator=(const SilentHome&) = delete;
  ~SilentHome() {
    if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_mounted() const { return is_mounted_; }

 private:
  std::string path_;
  UniqueFd server_;
  bool is_mounted_ = false;
};

TEST_F(HomeTest, AHomeThatHangsGetsNoMailAndLeavesNothingBehind) {
  const SilentHome home(user_.home);
  if (!home.is_mounted()) GTEST_SKIP() << "no FUSE here";
  sources_.most = 300ms;
  EXPECT_EQ(why_not("anna"), "home does not answer");
  EXPECT_THAT(find("anna").detail, HasSubstr("no answer in time"));
  EXPECT_TRUE(no_child_left());
}

TEST_F(HomeTest, AChildThatHangsHoldsNoDescriptorOfItsParent) {
  auto home = std::make_unique<SilentHome>(user_.home);
  if (!home->is_mounted()) GTEST_SKIP() << "no FUSE here";
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  std::jthread asking([&] { find_in_home(user_, user_.home + "/x", 2 * test::kPatience, stuck_); });
  while (no_child_left()) std::this_thread::yield();
  writing.reset();
  pollfd all_closed{reading.get(), POLLIN, 0};
  constexpr auto kMostMs = std::chrono::milliseconds(test::kPatience).count();
  EXPECT_EQ(::poll(&all_closed, 1, static_cast<int>(kMostMs)), 1);
  EXPECT_FALSE(no_child_left()) << "it still hangs";
  home.reset();  // its answer is an error now
}

}  // namespace
}  // namespace scriptorium::mail

#include "core/cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/base/file.h"
#include "core/base/guarded.h"
#include "core/plugin/loader.h"
#include "tests/core/cli/said.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Answers every request on STATE_DIR/control.sock with the same line, as a daemon would: one line,
// without spaces. Owns: the socket and its thread.
class FakeDaemon {
 public:
  FakeDaemon(const std::string& state_dir, const std::string& answer)
      : answer_(nlohmann::ordered_json::parse(answer).dump()),
        socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = state_dir + "/control.sock";
    if (path.size() >= sizeof address.sun_path)
      throw std::runtime_error("the path is too long: " + path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(socket_.get(), 8) != 0) {
      throw std::runtime_error("cannot listen on " + path);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) noexcept { serve(stop); });
  }
  ~FakeDaemon() {
    thread_.request_stop();
    ::shutdown(socket_.get(), SHUT_RDWR);  // wakes accept()
  }
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  std::vector<Json> requests() {
    return requests_.with([](const std::vector<Json>& r) { return r; });
  }

 private:
  void serve(const std::stop_token& stop) noexcept {
    while (!stop.stop_requested()) {
      const UniqueFd peer{::accept(socket_.get(), nullptr, nullptr)};
      if (!peer) continue;
      std::string line;
      for (char c = 0; ::read(peer.get(), &c, 1) == 1 && c != '\n';) line += c;
      requests_.with([&](std::vector<Json>& r) { r.push_back(Json::parse(line, nullptr, false)); });
      static_cast<void>(write_fd(peer.get(), answer_ + "\n"));
    }
  }

  std::string answer_;
  UniqueFd socket_;
  Guarded<std::vector<Json>> requests_;
  std::jthread thread_;
};

class CommandsTest : public ::testing::Test {
 protected:
  CommandsTest() {
    state_ = own_.make_directory("state");
    recorded_ = own_.make_directory("recorded");
  }

  void config(const std::string& sinks, const std::string& more = "") {
    file_ =
        own_.write("scriptorium.toml",
                   "cluster = \"lab\"\nstate_dir = \"" + state_ +
                       "\"\nplugin_dirs = [\"" SCRIPTORIUM_PLUGINS "\", \"" SCRIPTORIUM_TEST_PLUGINS
                       "\", \"" SCRIPTORIUM_SOUND_PLUGINS "\"]\n" +
                       more + "[source.replay]\nfolder = \"" + recorded_ + "\"\n" + sinks);
  }

  Said run(std::vector<std::string> words, const std::string& typed = "", bool terminal = false) {
    words.insert(words.end(), {"--config", file_});
    return say(words, typed, terminal);
  }

  test::TempDir own_;
  std::string state_;
  std::string recorded_;
  std::string file_;
};

// ---- check

TEST_F(CommandsTest, CheckOfAGoodConfigSaysSoAndLeavesNothingBehind) {
  config("[sink.null]\n[sink.more]\nplugin = \"good\"\n");
  const Said said = run({"check"});
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_THAT(said.out, ContainsRegex("configuration is valid: 1 source, 2 sinks\n$"));
  EXPECT_THAT(said.out, HasSubstr("state_dir: " + state_ + " is writable"));
  EXPECT_EQ(said.err, "");
  EXPECT_TRUE(std::filesystem::is_empty(state_));
  // Nor does it make what is not there yet.
  state_ = own_.path_to("later");
  config("[sink.archive]\nplugin = \"file\"\nroot = \"" + own_.path_to("archive") + "\"\n");
  EXPECT_EQ(run({"check"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(state_));
  EXPECT_FALSE(std::filesystem::exists(own_.path_to("archive")));
}

TEST_F(CommandsTest, CheckPrintsEveryProblemOfCoreAndPluginsOnItsLineAndExits78) {
  config(
      "[sink.a]\nplugin = \"null\"\nbatch_max_event = 3\n[sink.b]\nplugin = "
      "\"nul\"\n[sink.c]\nplugin = "
      "\"replay\"\n[sink.d]\nplugin = \"old_abi\"\n",
      "log_level = \"loud\"\n");
  const Said said = run({"check"});
  EXPECT_EQ(said.code, 78);
  EXPECT_EQ(said.out, "");
  EXPECT_THAT(said.err, HasSubstr(file_ + ":4: log_level: "));
  EXPECT_THAT(
      said.err,
      HasSubstr(file_ +
                ":9: sink.a.batch_max_event: unknown key; did you mean \"batch_max_events\"?"));
  EXPECT_THAT(said.err, HasSubstr(file_ + ":11: sink.b.plugin: plugin \"nul\": found only "));
  EXPECT_THAT(said.err, HasSubstr("did you mean \"null\"?"));
  EXPECT_THAT(
      said.err,
      HasSubstr(file_ +
                ":13: sink.c.plugin: \"replay\" is a source, so it belongs under [source.c]"));
  EXPECT_THAT(said.err, HasSubstr(file_ + ":15: sink.d.plugin: " SCRIPTORIUM_TEST_PLUGINS
                                          "/old_abi.so: found plugin ABI 0"));
  EXPECT_THAT(said.err, HasSubstr("5 problems in the configuration\n"));
}

TEST_F(CommandsTest, CheckExitsAsRunWouldIfTheDaemonWouldNotStart) {
  config("[sink.bad]\nplugin = \"throwing_factory\"\n");
  std::filesystem::remove(recorded_);
  const Said said = run({"check"});
  EXPECT_EQ(said.code, 78);
  EXPECT_THAT(said.out, HasSubstr("failed   source.replay: spool " + recorded_));
  EXPECT_THAT(said.out,
              HasSubstr("failed   sink.bad: " SCRIPTORIUM_TEST_PLUGINS
                        "/throwing_factory.so: found a factory that throws for sink.bad"));
  EXPECT_THAT(said.err, HasSubstr("2 checks of "));
}

TEST_F(CommandsTest, CheckSaysThatStateDirCannotBeMade) {
  state_ = own_.write("plain-file", "") + "/state";
  config("[sink.null]\n");
  const Said said = run({"check"});
  EXPECT_EQ(said.code, 73);
  EXPECT_THAT(said.out, HasSubstr("failed   state_dir: " + state_));
}

// ---- plugins

TEST_F(CommandsTest, PluginsListsWhatLoadsAndWhyTheRestDoesNot) {
  config("[sink.null]\n");
  const Said said = run({"plugins"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, ContainsRegex("null +sink +loadable +acknowledges every event"));
  EXPECT_THAT(said.out, ContainsRegex("replay +source +loadable"));
  for (const char* name : {"file", "stdout", "slurm"})
    EXPECT_THAT(said.out, ContainsRegex(std::string(name) + " +[a-z]+ +loadable"));
  EXPECT_THAT(said.out, ContainsRegex("wrong_stamp +. +not loadable"));
  EXPECT_THAT(said.out, HasSubstr("found build stamp gcc-1.2.3"));
}

TEST_F(CommandsTest, PluginsWithANameShowsItsOptionsAndTheCommonOnes) {
  config("[sink.null]\n");
  const Said said = run({"plugins", "throwing"});
  EXPECT_THAT(
      said.out,
      HasSubstr("  file  string; default \"\"\n      gets the id of every acknowledged event\n"));
  EXPECT_THAT(said.out, HasSubstr("  batch_max_events  integer; default 500; allowed: 1 .. "));
  EXPECT_THAT(run({"plugins", "sleepy"}).out, HasSubstr("  file  string; required\n"));
  EXPECT_THAT(run({"plugins", "core"}).out, HasSubstr("  cluster  string; required"));
  EXPECT_THAT(run({"plugins", "file"}).out, HasSubstr("  layout  "));
  EXPECT_THAT(run({"plugins", "throwing", "--markdown"}).out,
              HasSubstr("| `file` | string | `\"\"` |"));
}

TEST_F(CommandsTest, PluginsWithAnUnloadableNameExits69) {
  config("[sink.null]\n");
  const Said said = run({"plugins", "new_abi"});
  EXPECT_EQ(said.code, 69);
  EXPECT_THAT(said.err, HasSubstr("found plugin ABI"));
}

TEST_F(CommandsTest, PluginsNeedsNoConfig) {
  file_ = own_.path_to("nowhere.toml");
  EXPECT_EQ(run({"plugins"}).code, 0);
}

// ---- status

const char* const kStatus = R"({"ok": true, "result": {"version": "0.1.0", "uptime_seconds": 812.4,
 "sources": {"slurm": {"plugin": "slurm", "capture": "inotify", "why_not_better": "fanotify: operation not permitted", "captured": 10000,
   "incomplete": 1, "missed": {"vanished": 2}, "lag_seconds": 0.004, "last_error": null,
   "owners": {"verified": 9, "unverified": {"gone": 1, "hid\u001bden": 5, "none": 0},
     "scheduler_load": {"share": 0.00021, "questions": {"all jobs": 1, "one job": 51}}}}},
 "journal": {"events": 412, "bytes": 1048576, "limit_bytes": 2097152, "full": false, "last_error": null},
 "sinks": {"archive": {"plugin": "file", "acknowledged": 9588, "retries": {"no space left on device": 3}, "dead": 4, "waiting": 412,
   "waiting_bytes": 903211, "oldest_waiting_seconds": 2.1, "last_error": "no space\u001b left", "last_success": "2026-11-21T01:26:22Z"}}}})";

TEST_F(CommandsTest, StatusIsAScreenForPeople) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_, kStatus);
  const Said said = run({"status"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("scriptorium 0.1.0, up 13 min 32 s"));
  EXPECT_THAT(said.out, ContainsRegex("slurm +slurm +inotify +10000 +1 +6 +2 +4 ms"));
  EXPECT_THAT(said.out, HasSubstr("no better way: fanotify: operation not permitted"));
  EXPECT_THAT(said.out, HasSubstr("missed 2 x: vanished"));
  EXPECT_THAT(said.out,
              ContainsRegex("owner unverified 5 x: hid.x1bden\n.*owner unverified 1 x: gone\n"));
  EXPECT_THAT(said.out, Not(HasSubstr("0 x: none")));
  EXPECT_THAT(
      said.out,
      HasSubstr("asked the scheduler: 1 x all jobs, 51 x one job; at most 0.02 % of its time"));
  EXPECT_THAT(said.out, HasSubstr("412 events, 1.0 MiB of 2.0 MiB (50 %)"));
  EXPECT_THAT(
      said.out,
      ContainsRegex("archive +file +9588 +412 +882 KiB +2.1 s +3 +4 +2026-11-21T01:26:22Z"));
  EXPECT_THAT(said.out, HasSubstr("retried 3 x: no space left on device"));
  EXPECT_THAT(said.out, HasSubstr("last error: no space\\x1b left"));
  EXPECT_THAT(said.out, HasSubstr("scriptorium deadletters list --sink archive"));
  EXPECT_THAT(said.out, Not(HasSubstr("\033")));
  EXPECT_THAT(daemon.requests(), ElementsAre(Json{{"command", "status"}}));
}

TEST_F(CommandsTest, StatusJsonPassesTheAnswerThrough) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_, kStatus);
  EXPECT_EQ(Json::parse(run({"status", "--json"}).out), Json::parse(kStatus).at("result"));
}

TEST_F(CommandsTest, StatusOfAnotherVersionsDaemonShowsWhatItKnows) {
  config("[sink.null]\n");
  FakeDaemon daemon(
      state_, R"({"ok": true, "result": {"sources": {"s": 3}, "sinks": {"a": {"dead": "many"}}}})");
  const Said said = run({"status"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, ContainsRegex("a +- +-"));
}

TEST_F(CommandsTest, StatusWithoutDaemonExits69) {
  config("[sink.null]\n");
  const Said said = run({"status"});
  EXPECT_EQ(said.code, 69);
  EXPECT_THAT(said.err, HasSubstr("no daemon runs on " + state_));
}

TEST_F(CommandsTest, StatusStillWorksWhenTheConfigHasBecomeWrong) {
  config("[sink.null]\nbatch_max_events = 0\n");
  FakeDaemon daemon(state_, kStatus);
  const Said said = run({"status"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.err,
              HasSubstr("1 problem in the configuration; \"scriptorium check\" names them"));
  file_ = own_.path_to("nowhere.toml");
  EXPECT_EQ(run({"status"}).code, 78);
}

// ---- deadletters

TEST_F(CommandsTest, DeadLettersAreATable) {
  config("[sink.null]\n");
  FakeDaemon daemon(
      state_,
      R"({"ok": true, "result": [{"sink": "archive", "event_id": "0123456789abcdef", "kind": "job.script",
    "cluster": "lab", "job_id": "47\u001b[2J", "reason": "413 document too large", "attempts": 1, "first_attempt": "a", "last_attempt": "b",
    "bytes": 2048}]})");
  const Said said = run({"deadletters", "list", "--sink", "archive"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, HasSubstr("0123456789ab  archive  47\\x1b[2J  job.script         1  b      "
                                  "       2.0 KiB  413 document too large"));
  EXPECT_THAT(daemon.requests(),
              ElementsAre(Json{{"command", "deadletters.list"}, {"sink", "archive"}}));
}

TEST_F(CommandsTest, DiscardAsksOnATerminalAndWantsYesElsewhere) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_, R"({"ok": true, "result": {"count": 2}})");
  const Said piped = run({"deadletters", "discard", "--all"});
  EXPECT_EQ(piped.code, 64);
  EXPECT_THAT(piped.err, HasSubstr("confirm with --yes"));
  EXPECT_NE(run({"deadletters", "discard", "--all"}, "n\n", true).code, 0);
  EXPECT_TRUE(daemon.requests().empty());
  EXPECT_EQ(run({"deadletters", "discard", "--all"}, "y\n", true).out,
            "2 dead letters discarded\n");
  EXPECT_EQ(run({"deadletters", "discard", "0123abcd", "--yes"}).code, 0);
  EXPECT_EQ(run({"deadletters", "retry", "0123abcd", "--sink", "archive"}).out,
            "2 dead letters will be delivered again\n");
  EXPECT_THAT(
      daemon.requests(),
      ElementsAre(
          Json{{"command", "deadletters.discard"}, {"event_id", ""}},
          Json{{"command", "deadletters.discard"}, {"event_id", "0123abcd"}},
          Json{{"command", "deadletters.retry"}, {"event_id", "0123abcd"}, {"sink", "archive"}}));
}

TEST_F(CommandsTest, AnUnknownDeadLetterExits66) {
  config("[sink.null]\n");
  {
    FakeDaemon daemon(state_, R"({"ok": true, "result": {"count": 0}})");
    EXPECT_EQ(run({"deadletters", "retry", "0123abcd"}).code, 66);
    EXPECT_EQ(run({"deadletters", "retry", "--all"}).code, 0) << "none to retry is not an error";
  }
  std::filesystem::remove(state_ + "/control.sock");
  FakeDaemon daemon(state_,
                    R"({"ok": false, "error": "no dead letter has the event id 0123abcd"})");
  const Said said = run({"deadletters", "show", "0123abcd"});
  EXPECT_EQ(said.code, 66);
  EXPECT_THAT(said.err, HasSubstr("no dead letter has the event id 0123abcd"));
}

// ---- show

const char* const kFound =
    R"({"ok": true, "result": [{"id": "aa", "time": "2026-11-21T01:00:00.000Z", "cluster": "lab",
  "job": {"id": "7", "name": "md\n2"}, "user": {"name": "alice", "id": "1001", "verified": false},
  "script": {"text": "#!/bin/sh\necho \u001b[31mred\n", "encoding": "utf-8"}, "environment": {"A": "1", "B": "x=y"}},
 {"id": "bb", "time": "2026-11-21T02:00:00.000Z", "job": {"id": "7"}, "user": {"name": "bob", "verified": true},
  "script": {"text": "/wA=", "encoding": "base64"}}]})";

TEST_F(CommandsTest, ShowPrintsOwnerPlaceAndScriptOfEachCaptureNewestFirst) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_, kFound);
  const Said said = run({"show", "7"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("  owner       alice (uid 1001) (unverified)\n"));
  EXPECT_THAT(said.out, HasSubstr("  owner       bob\n"));
  EXPECT_THAT(said.out, HasSubstr("job 7  md\\n2\n"));
  EXPECT_THAT(said.out, HasSubstr("  lies in     the journal\n"));
  EXPECT_THAT(said.out, HasSubstr("#!/bin/sh\necho \\x1b[31mred\n"))
      << "behind a pipe may be a terminal as well";
  EXPECT_LT(said.out.find("bob"), said.out.find("alice"));
}

TEST_F(CommandsTest, ShowLetsNoScriptMoveTheTerminalsCursor) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_, kFound);
  const Said said = run({"show", "7"}, "", true);
  EXPECT_THAT(said.out, HasSubstr("#!/bin/sh\necho \\x1b[31mred\n"));
  EXPECT_THAT(said.out, Not(HasSubstr("\033")));
}

TEST_F(CommandsTest, ShowRawIsTheBytesOfTheNewestAndNothingElse) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_, kFound);
  const Said said = run({"show", "7", "--raw"});
  EXPECT_EQ(said.out, std::string("\xff\0", 2));
  EXPECT_THAT(said.err, HasSubstr("2 captures of job 7"));
}

TEST_F(CommandsTest, ShowRawOnATerminalEscapesWhatItWouldActOn) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_, kFound);
  const Said said = run({"show", "7", "--raw"}, "", true);
  EXPECT_EQ(said.out, "\\xff\\x00");
  EXPECT_THAT(said.err, HasSubstr("write to a file or a pipe to get the bytes as they are"));
}

TEST_F(CommandsTest, ShowEnvironmentIsOneLineAVariableWhateverItHolds) {
  config("[sink.null]\n");
  FakeDaemon daemon(
      state_,
      R"({"ok": true, "result": [{"id": "aa", "time": "2026-11-21T01:00:00.000Z", "job": {"id": "7"},
    "environment": {"A": "1\nUSER=root", "B": "\u202e\u009b31m"}}]})");
  const Said said = run({"show", "7", "--environment"});
  EXPECT_THAT(said.out, HasSubstr("\nA=1\\nUSER=root\nB=\\u202e\\xc2\\x9b31m\n"));
  EXPECT_THAT(run({"show", "7", "--json"}).out, HasSubstr("\\u202e\\u009b31m"));
}

TEST_F(CommandsTest, ShowSaysWhichPartOfAJobItIs) {
  config("[sink.null]\n");
  FakeDaemon daemon(state_,
                    R"({"ok": true, "result": [{"id": "aa", "time": "2026-11-21T01:00:00.000Z",
    "job": {"id": "8", "array": {"job_id": "8", "task_id": null, "task_spec": "0-9%2"}}}]})");
  EXPECT_THAT(run({"show", "8"}).out,
              HasSubstr("  part        array 0-9%2: one script for all its tasks\n"));
}

TEST_F(CommandsTest, ShowFindsWhatASinkHolds) {
  const std::string archive = own_.path_to("archive");
  config("[sink.archive]\nplugin = \"file\"\nroot = \"" + archive +
         "\"\nlayout = \"{job_id}.{ext}\"\nacl = \"none\"\nowner_may_read = false\n");
  own_.write("archive/4711.sh", "#!/bin/sh\necho found\n");
  own_.write("archive/4711.env", std::string("A=1\0B=2\0", 8));
  own_.write(
      "archive/4711.json",
      R"({"schema": "scriptorium.event/1", "id": ")" + std::string(64, 'a') +
          R"(", "job": {"id": "4711"}, "time": "2026-11-21T01:00:00.000Z", "user": {"name": "carol", "verified": true}})");
  FakeDaemon daemon(state_, R"({"ok": true, "result": []})");
  const Said said = run({"show", "4711"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("archive: " + archive + "/4711.sh"),
                              HasSubstr("echo found\n"), ContainsRegex("owner +carol\n")));
  EXPECT_EQ(run({"show", "4711", "--raw", "--environment"}).out, std::string("A=1\0B=2\0", 8));
  EXPECT_THAT(run({"show", "4711", "--environment"}).out, HasSubstr("\nA=1\nB=2\n"));
  const Json json = Json::parse(run({"show", "4711", "--json"}).out);
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0].at("stored")[0].at("sink"), "archive");
  EXPECT_EQ(json[0].at("event").at("user").at("name"), "carol");
  EXPECT_EQ(json[0].at("in_journal"), false);
}

TEST_F(CommandsTest, ShowOfAnUnknownJobExits66) {
  config("[sink.null]\n");
  const Said alone = run({"show", "99"});
  EXPECT_NE(alone.code, 0);
  EXPECT_THAT(alone.err, HasSubstr("99"));
  FakeDaemon daemon(state_, R"({"ok": true, "result": []})");
  const Said said = run({"show", "99"});
  EXPECT_EQ(said.code, 66);
  EXPECT_THAT(said.err, HasSubstr("job 99 is neither in the journal nor in a sink"));
}

// ---- setup

TEST_F(CommandsTest, SetupAsksTheSinkAndNamesTheOnesThereAre) {
  config("[sink.null]\n");
  EXPECT_EQ(run({"setup", "null"}).out, "nothing to set up\n");
  const Said said = run({"setup", "nul"});
  EXPECT_EQ(said.code, 64);
  EXPECT_THAT(said.err, HasSubstr("there is no [sink.nul] in the configuration; there are: null"));
}

// ---- catalog

TEST_F(CommandsTest, CatalogShowsFiguresAndThatAllIsIntact) {
  config("[sink.kept]\nplugin = \"maintained\"\n");
  const Said said = run({"catalog", "check"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out,
            "file bytes       2.0 KiB\njobs             3\n"
            "oldest job time  2023-11-14T22:13:20Z\nintact\n");
  EXPECT_EQ(Json::parse(run({"catalog", "stats", "--json"}).out),
            Json::parse(R"({"command": "stats", "sink": "kept", "interrupted": false,
                "figures": {"file_bytes": 2048, "jobs": 3, "oldest_job_time": 1700000000},
                "findings": []})"));
}

TEST_F(CommandsTest, CatalogCheckNamesWhatIsWrongAndWhatHelps) {
  config("[sink.kept]\nplugin = \"maintained\"\nstate = \"lost\"\n");
  const Said said = run({"catalog", "check"});
  EXPECT_EQ(said.code, 1);
  EXPECT_THAT(
      said.out,
      AllOf(HasSubstr("block 17: its sum is wrong\n"), HasSubstr("job 4711: its script is lost\n"),
            HasSubstr("scriptorium catalog rebuild\n"), HasSubstr("scriptorium sinks fill kept\n"),
            ::testing::EndsWith("2 findings\n")));
  EXPECT_THAT(Json::parse(run({"catalog", "check", "--json"}).out).at("findings").at(1),
              Json::parse(R"({"place": "job 4711", "problem": "its script is lost",
                              "lost": true})"));
  EXPECT_EQ(run({"catalog", "rebuild"}).code, 65);
  EXPECT_EQ(run({"catalog", "compact"}).code, 65);
  config("[sink.kept]\nplugin = \"maintained\"\nstate = \"ruined\"\n");
  EXPECT_THAT(run({"catalog", "check"}).out,
              AllOf(HasSubstr("and 4999 more; --json has the first 1\n"),
                    ::testing::EndsWith("5000 findings\n")));

  config("[sink.kept]\nplugin = \"maintained\"\nstate = \"damaged\"\n");
  EXPECT_THAT(
      run({"catalog", "check", "--sink", "kept"}).out,
      AllOf(HasSubstr("scriptorium catalog rebuild --sink kept\n"), Not(HasSubstr("sinks fill"))));
  EXPECT_EQ(run({"catalog", "rebuild"}).code, 0);
}

TEST_F(CommandsTest, CatalogSaysWhyItCannotWork) {
  for (const auto& [state, code, words] : std::vector<std::tuple<std::string, int, std::string>>{
           {"absent", 66, "nothing is stored yet"},
           {"busy", 75, "another process does the same"},
           {"interrupted", 75, "run the same command again to continue"}}) {
    config("[sink.kept]\nplugin = \"maintained\"\nstate = \"" + state + "\"\n");
    const Said said = run({"catalog", "check"});
    EXPECT_EQ(said.code, code) << state;
    EXPECT_THAT(said.err, HasSubstr(words)) << state;
  }
}

TEST_F(CommandsTest, CatalogNeedsOneInTheConfigurationOrItsName) {
  config("[sink.null]\n");
  const Said none = run({"catalog", "check"});
  EXPECT_EQ(none.code, 64);
  EXPECT_THAT(none.err, HasSubstr("[sink.catalog]\nkinds = [\"job.*\", \"usage.job\"]\n"));
  EXPECT_THAT(run({"catalog", "check", "--sink", "null"}).err,
              HasSubstr("[sink.null] is no catalog of the configuration"));

  config("[sink.a]\nplugin = \"maintained\"\n[sink.b]\nplugin = \"maintained\"\n");
  const Said several = run({"catalog", "check"});
  EXPECT_EQ(several.code, 64);
  EXPECT_THAT(several.err, HasSubstr("several catalogs: a, b; name one with --sink"));
  EXPECT_EQ(run({"catalog", "check", "--sink", "b"}).code, 0);
}

// ---- redact --archive

TEST_F(CommandsTest, RedactWithoutADirectoryGoesThroughEverySink) {
  const std::string archive = own_.make_directory("archive");
  const std::string tree = "[sink.archive]\nplugin = \"file\"\nroot = \"" + archive + "\"\n";
  config(tree + "[sink.kept]\nplugin = \"maintained\"\n[sink.null]\n");
  const Said shown = run({"redact", "--archive", "--apply"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out,
            "sink archive:\n0 events read, 0 changed\nsink kept:\n3 events read, 0 changed\n"
            "the sink null cannot be changed; what it holds of these jobs must be deleted there\n");
  const Json json = Json::parse(run({"redact", "--archive", "--dry-run", "--json"}).out);
  EXPECT_EQ(json.at("sinks").at("archive").at("events"), 0);
  EXPECT_EQ(json.at("sinks").at("kept").at("events"), 3);
  EXPECT_EQ(json.at("unchangeable"), Json::array({"null"}));
  EXPECT_EQ(json.at("interrupted"), false);

  // One that cannot be cleaned does not spare the others, and the worst exit code counts.
  config(
      "[sink.kept]\nplugin = \"maintained\"\nstate = \"absent\"\n"
      "[sink.more]\nplugin = \"maintained\"\nstate = \"damaged\"\n");
  const Said worst = run({"redact", "--archive", "--apply", "--json"});
  EXPECT_EQ(worst.code, 66);
  const Json sinks = Json::parse(worst.out).at("sinks");
  EXPECT_EQ(sinks.at("kept").at("error"), "nothing is stored yet");
  EXPECT_EQ(sinks.at("more").at("left").at("cannot be read"), 1);
}

TEST_F(CommandsTest, RedactRefusesWhileASinkThatCannotBeChangedKeepsTheSecret) {
  const std::string archive = own_.make_directory("archive");
  config("[sink.archive]\nplugin = \"file\"\nroot = \"" + archive +
         "\"\n[sink.kept]\nplugin = \"maintained\"\nstate = \"frozen\"\n");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"redact", "--archive", "--apply"}, {"redact", "--archive", archive, "--apply"}}) {
    const Said refused = run(words);
    EXPECT_EQ(refused.code, 69);
    EXPECT_THAT(refused.err, HasSubstr("the sink kept holds the same jobs, and nothing can be "
                                       "removed from it"));
  }
  EXPECT_THAT(run({"redact", "--archive", "--dry-run"}).out,
              HasSubstr("the sink kept cannot be changed"));
}

TEST_F(CommandsTest, RedactOfATreeRefusesWhileAnotherSinkWouldKeepTheSecret) {
  const std::string archive = own_.make_directory("archive");
  config("[sink.archive]\nplugin = \"file\"\nroot = \"" + archive +
         "\"\n[sink.kept]\nplugin = \"maintained\"\n");
  const Said refused = run({"redact", "--archive", archive, "--apply"});
  EXPECT_EQ(refused.code, 69);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("the sink kept holds the same jobs"),
                    HasSubstr("use \"scriptorium redact --archive --apply\" without a directory")));
  EXPECT_EQ(
      Json::parse(run({"redact", "--archive", archive, "--dry-run", "--json"}).out).at("events"),
      0);
}

}  // namespace
}  // namespace scriptorium::cli

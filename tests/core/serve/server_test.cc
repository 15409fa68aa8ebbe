#include "core/serve/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/guarded.h"
#include "core/query/visible_store.h"
#include "core/serve/protocol.h"
#include "core/serve/remote_store.h"
#include "tests/core/serve/samples.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;
constexpr uid_t kSupport = 1003;
constexpr uid_t kUnknown = 1004;

JobRow job_of(const std::string& user, uid_t uid, const std::string& id) {
  JobRow job = test::row();
  job.user = user;
  job.uid = std::to_string(uid);
  job.id = id;
  job.event_id = "event of " + id;
  return job;
}

// A store of three jobs, whose searches a test can hold up.
class HeldStore final : public Searchable {
 public:
  Speed speed() const noexcept override { return Speed::kIndexed; }
  Result<Answer> search(const Request& request) override {
    if (request.query.text == "held") {
      state_.with_notify([](State& s) { ++s.begun; });
      state_.wait_until(request.stop, request.deadline, [](const State& s) { return s.released; });
      state_.with_notify([](State& s) { ++s.ended; });
      if (request.stop.stop_requested() || std::chrono::steady_clock::now() >= request.deadline)
        return Answer{.finished = false};
    }
    if (request.query.text == "throws") throw std::runtime_error("out of cheese");
    Answer answer{.next = request.after + "!"};
    for (const JobRow& job : jobs_) {
      if (is_visible(job, request.visibility)) answer.hits.push_back({.job = job, .lines = {}});
    }
    answer.count = Count{.jobs = answer.hits.size()};
    return answer;
  }
  Result<std::vector<Record>> get(const Selector& selector, const Visibility& visibility,
                                  std::size_t) override {
    std::vector<Record> records;
    for (const JobRow& job : jobs_) {
      if (job.id == selector.id && is_visible(job, visibility))
        records.push_back({.job = job, .event = event});
    }
    return records;
  }
  // Family 2 has 2,500 jobs, the others one of each user.
  Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility& visibility,
                                     std::optional<Timestamp> before, std::size_t limit) override {
    std::vector<JobRow> rows;
    std::int64_t time = before ? before->nanoseconds - 1 : 2'500;
    for (; family == 2 && time > 0 && rows.size() < limit; --time) {
      rows.push_back(jobs_.front());
      rows.back().time = {time};
    }
    if (family != 2) rows = jobs_;
    std::erase_if(rows, [&](const JobRow& job) { return !is_visible(job, visibility); });
    return rows;
  }
  Result<RunAnswer> runs(const RunRequest& request,
                         const std::function<void(const JobRun&)>& use) override {
    JobRun run = test::run();
    if (request.most_wasteful > 0) {
      for (const JobRow& job : jobs_) {
        run.user = job.user;
        run.uid = job.uid;
        run.key = job.id;
        Event event;
        event.id = job.event_id;
        run.event = request.origin && request.with_event && request.with_event(run)
                        ? std::make_shared<const Event>(std::move(event))
                        : nullptr;
        if (is_visible(run, request.visibility)) use(run);
      }
      return RunAnswer{.finished = request.most_wasteful < 100, .problems = {}};
    }
    for (std::uint64_t i = 0; i < runs_of_each && !request.stop.stop_requested(); ++i) {
      for (const JobRow& job : jobs_) {
        run.user = job.user;
        run.uid = job.uid;
        run.core_seconds = i;
        if (is_visible(run, request.visibility)) use(run);
      }
    }
    state_.with_notify([](State& s) { ++s.ended; });
    return RunAnswer{.problems = {"a problem"}};
  }

  void release() {
    state_.with_notify([](State& s) { s.released = true; });
  }
  void wait_begun(int count) {
    state_.wait(std::stop_token(), [&](const State& s) { return s.begun >= count; });
  }
  void wait_ended(int count) {
    state_.wait(std::stop_token(), [&](const State& s) { return s.ended >= count; });
  }
  bool ends_within(std::chrono::milliseconds time) {
    return state_.wait_until(std::stop_token(), std::chrono::steady_clock::now() + time,
                             [](const State& s) { return s.ended > 0; });
  }
  int begun() {
    return state_.with([](const State& s) { return s.begun; });
  }

  Result<std::vector<CoordinatorList>> coordinators() override { return lists; }

  std::vector<CoordinatorList> lists;
  std::uint64_t runs_of_each = 700;
  std::shared_ptr<const Event> event;  // of each job

 private:
  struct State {
    int begun = 0;
    int ended = 0;
    bool released = false;
  };
  const std::vector<JobRow> jobs_{job_of("alice", kAlice, "1"), job_of("bob", kBob, "2"),
                                  job_of("alice", 999, "3")};
  Guarded<State> state_;
};

// A client that sends what no client of ours would.
class RawClient {
 public:
  explicit RawClient(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void send(const std::string& bytes) {
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void ask(const Ask& ask) { send(frames_of(encode(ask)).front()); }
  // Nothing once the service has closed the connection.
  std::optional<Reply> receive() {
    std::array<char, 4096> buffer{};
    while (true) {
      if (auto message = reader_.next(); *message) return *decode_reply(**message);
      const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (count <= 0) return std::nullopt;
      reader_.add({buffer.data(), static_cast<std::size_t>(count)});
    }
  }
  std::string error() {
    const auto reply = receive();
    return reply ? reply->message : "closed";
  }

 private:
  UniqueFd socket_;
  FrameReader reader_{kMostMessageBytes};
};

Ask ask_held() { return {.store = "catalog", .search = {.query = {.text = "held"}}}; }

class ServerTest : public ::testing::Test {
 protected:
  void start(Server::Limits limits = {}) {
    auto socket = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(socket.get(), 512), 0);
    server_ = std::make_unique<Server>(
        std::move(socket),
        Server::Service{.find_caller = [](uid_t uid) { return caller_of(uid); },
                        .record = [this](const Logger::Fields& fields) { return record(fields); },
                        .stores = {{"catalog", &store_}},
                        .limits = limits,
                        .peer = [this](int) { return peer_.load(); }},
        log_);
    server_->start();
  }
  static Result<Caller> caller_of(uid_t uid) {
    if (uid == kUnknown) return Error{ErrorKind::kPermanent, "has no login"};
    Caller caller{.uid = uid, .login = uid == kAlice ? "alice" : uid == kBob ? "bob" : "support"};
    caller.visibility.all = uid == kSupport;
    if (uid != kSupport)
      caller.visibility.users = {{.name = caller.login, .uid = std::to_string(uid)}};
    return caller;
  }
  Result<void> record(const Logger::Fields& fields) {
    log_.info("SERVE_ANSWERED", "", fields);
    if (!can_record_) return Error{ErrorKind::kTransient, "no space left on device"};
    return {};
  }
  // The next connections are of this user. One at a time may be made.
  RemoteStore as(uid_t uid) {
    peer_ = uid;
    return {path_, "catalog"};
  }
  RawClient raw(uid_t uid) {
    peer_ = uid;
    return RawClient(path_);
  }
  // After the greeting, so that the next one may be of another user.
  RawClient greeted(uid_t uid) {
    RawClient client = raw(uid);
    EXPECT_EQ(client.receive()->kind, Reply::Kind::kHello);
    return client;
  }
  static std::vector<std::string> ids(const Result<Searchable::Answer>& answer) {
    if (!answer) return {answer.error().message()};
    std::vector<std::string> ids;
    for (const Searchable::Hit& hit : answer->hits) ids.push_back(hit.job.id);
    return ids;
  }

  scriptorium::test::TempDir dir_;
  const std::string path_ = dir_.path_to("query.sock");
  scriptorium::test::RecordingLogger log_;
  HeldStore store_;
  std::atomic<uid_t> peer_{kAlice};
  std::atomic<bool> can_record_{true};
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, EachCallShowsAUserTheOwnJobsAndNoOthersWhateverIsAskedFor) {
  start();
  RemoteStore alice = as(kAlice);
  const auto found = alice.search({.after = "x", .count = true});
  EXPECT_THAT(ids(found), ElementsAre("1"));
  EXPECT_EQ(found->next, "x!");
  EXPECT_EQ(found->count->jobs, 1U);
  EXPECT_EQ(alice.get({.id = "1"}, {}, 5)->at(0).job, job_of("alice", kAlice, "1"));
  EXPECT_THAT(*alice.get({.id = "2"}, {}, 5), IsEmpty()) << "of bob";
  EXPECT_THAT(*alice.get({.id = "3"}, {}, 5), IsEmpty()) << "of another alice";
  EXPECT_THAT(*alice.get({.id = "99"}, {}, 5), IsEmpty()) << "which there never was";
  EXPECT_EQ(alice.family(1, {}, std::nullopt, 5)->size(), 1U);
  EXPECT_EQ(alice.family(2, {}, std::nullopt, 9'999)->size(), 2'500U);
  EXPECT_EQ(alice.family(2, {}, Timestamp{1'500}, 1'200)->back().time, Timestamp{300});
  std::uint64_t runs = 0;
  const auto problems = alice.runs({}, [&](const JobRun& run) {
    EXPECT_EQ(run.uid, std::to_string(kAlice));
    EXPECT_EQ(run.core_seconds, runs++);
  });
  EXPECT_THAT(problems->problems, ElementsAre("a problem"));
  EXPECT_TRUE(problems->finished);
  EXPECT_EQ(runs, 700U);
}

TEST_F(ServerTest, TheMostWastefulRunsHaveTheirEventsAndAreLogged) {
  start();
  std::vector<std::string> events;
  const Searchable::RunRequest request{
      .origin = true,
      .with_event = [](const JobRun& run) { return run.key == "1"; },
      .most_wasteful = 10};
  const auto answer = as(kSupport).runs(
      request, [&](const JobRun& run) { events.push_back(run.event ? run.event->id : "none"); });
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->finished);
  EXPECT_THAT(events, ElementsAre("event of 1", "none", "none"));
  EXPECT_THAT(log_.text(), HasSubstr("event of 3"));
  EXPECT_FALSE(as(kSupport).runs({.most_wasteful = 1'000}, [](const JobRun&) {})->finished);
  EXPECT_FALSE(as(kAlice).runs({.with_event = request.with_event}, [](const JobRun&) {}));
}

TEST_F(ServerTest, AReaderSeesAllJobs) {
  start();
  EXPECT_THAT(ids(as(kSupport).search({})), ElementsAre("1", "2", "3"));
  EXPECT_THAT(ids(as(kBob).search({})), ElementsAre("2"));
}

TEST_F(ServerTest, ACoordinatorSeesTheJobsOfTheAccountsIfTheSchedulerSaidSoWithinADay) {
  constexpr std::int64_t kHour = 3'600 * kSecond;
  const JobRow job = job_of("bob", kBob, "2");
  const std::int64_t now = system_clock().now().nanoseconds;
  store_.lists = {{.cluster = job.cluster,
                   .asked_at = {now - 23 * kHour},
                   .accounts = {{"law", {"bob"}}, {*job.account, {"carol", "alice"}}}}};
  start();
  EXPECT_THAT(ids(as(kAlice).search({})), ElementsAre("1", "2", "3"));
  EXPECT_THAT(log_.messages().back().text(), HasSubstr("sees=own and accounts"));
  EXPECT_EQ(as(kAlice).get({.id = "2"}, {}, 5)->size(), 1U);
  EXPECT_EQ(as(kAlice).family(1, {}, std::nullopt, 5)->size(), 3U);
  std::uint64_t runs = 0;
  ASSERT_TRUE(as(kAlice).runs({}, [&](const JobRun&) { ++runs; }));
  EXPECT_EQ(runs, 3 * 700U);
  EXPECT_THAT(ids(as(kBob).search({})), ElementsAre("2")) << "law has no job";
  store_.lists[0].cluster = "elsewhere";
  EXPECT_THAT(ids(as(kAlice).search({})), ElementsAre("1"));
  store_.lists[0].cluster = job.cluster;
  store_.lists[0].asked_at = {now - 25 * kHour};
  EXPECT_THAT(ids(as(kAlice).search({})), ElementsAre("1"));
  EXPECT_THAT(log_.messages().back().text(), HasSubstr("sees=own,"));
}

TEST_F(ServerTest, WhatIsAskedForIsRecordedFirst) {
  start();
  ASSERT_TRUE(as(kBob).search({.query = {.kind = Query::Kind::kText, .text = "gmx"}}));
  const auto messages = log_.messages();
  ASSERT_FALSE(messages.empty());
  EXPECT_THAT(messages.back().text(),
              HasSubstr("{user=bob, uid=1002, sees=own, store=catalog, call=search, asked=gmx, "
                        "hits=1, events=event of 2}"));
  can_record_ = false;
  for (const Error& error : {as(kBob).search({}).error(), as(kBob).get({.id = "2"}, {}, 1).error(),
                             as(kBob).family(1, {}, std::nullopt, 1).error(),
                             as(kBob).runs({}, [](const JobRun&) { ADD_FAILURE(); }).error()}) {
    EXPECT_THAT(error.message(), HasSubstr("cannot log what it is asked: no space left"));
    EXPECT_EQ(error.kind(), ErrorKind::kTransient);
  }
}

TEST_F(ServerTest, WhatCannotBeAnsweredIsAnErrorAndNoEmptyResult) {
  start();
  peer_ = kAlice;
  EXPECT_THAT(RemoteStore(path_, "other").search({}).error().message(), HasSubstr("\"other\""));
  EXPECT_THAT(as(kAlice).search({.query = {.text = "throws"}}).error().message(),
              HasSubstr("out of cheese"));
  EXPECT_THAT(as(kUnknown).search({}).error().message(), HasSubstr("has no login"));
  const std::vector<QueryField> facets(kQueryFieldCount + 1, QueryField::kUser);
  EXPECT_EQ(as(kAlice).search({.facets = facets}).error().message(), "too many facets");
  EXPECT_EQ(as(kAlice)
                .runs({.with_event = [](const JobRun&) { return true; }}, [](const JobRun&) {})
                .error()
                .kind(),
            ErrorKind::kInvalidConfig);
}

TEST_F(ServerTest, ThousandIdleConnectionsOfOneUserChangeNothingForAnother) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  start();
  std::vector<RawClient> idle;
  std::size_t refused = 0;
  for (int i = 0; i < 1'000; ++i) {
    idle.push_back(raw(kAlice));
    const auto reply = idle.back().receive();
    ASSERT_TRUE(reply);
    if (reply->kind != Reply::Kind::kError) continue;
    ++refused;
    EXPECT_THAT(reply->message, HasSubstr("too many connections of this user"));
  }
  EXPECT_EQ(refused, 1'000 - Server::Limits{}.connections_of_user);
  EXPECT_THAT(ids(as(kBob).search({})), ElementsAre("2"));
  idle.clear();
}

TEST_F(ServerTest, WithoutRoomTheConnectionThatWasIdleLongestMakesWayButNoneInUse) {
  start({.connections = 2});
  RawClient busy = greeted(kAlice);
  busy.ask(ask_held());
  store_.wait_begun(1);
  RawClient idle = greeted(kAlice);
  RawClient other = greeted(kBob);
  EXPECT_FALSE(idle.receive());
  other.ask(ask_held());
  store_.wait_begun(2);
  EXPECT_THAT(as(kSupport).search({}).error().message(), HasSubstr("busy"));
  store_.release();
  EXPECT_EQ(busy.receive()->hits.size(), 1U);
  EXPECT_EQ(other.receive()->hits.size(), 1U);
}

TEST_F(ServerTest, OneUsersQueriesLeaveThreadsForOthers) {
  start();
  std::vector<RawClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(greeted(kAlice));
    clients.back().ask(ask_held());
  }
  store_.wait_begun(2);
  EXPECT_THAT(ids(as(kBob).search({})), ElementsAre("2"));
  EXPECT_EQ(store_.begun(), 2);
  store_.release();
  for (RawClient& client : clients) {
    EXPECT_EQ(client.receive()->hits.size(), 1U);
    EXPECT_EQ(client.receive()->kind, Reply::Kind::kEnd);
  }
  EXPECT_EQ(store_.begun(), 4);
}

TEST_F(ServerTest, AConnectionCanAskAgainAlsoBeforeItHasTheAnswer) {
  start();
  RawClient client = greeted(kBob);
  const Ask get{.call = Ask::Call::kGet, .store = "catalog", .selector = {.id = "2"}, .limit = 1};
  const std::string frame = frames_of(encode(get)).front();
  client.send(frame + frame);
  client.send(frame);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.receive()->records.size(), 1U);
    EXPECT_EQ(client.receive()->kind, Reply::Kind::kEnd);
  }
}

TEST_F(ServerTest, AJobOfManyFramesArrivesWholeAndOneThatIsTooLargeWithoutItsFiles) {
  start();
  const std::string script(3 * Server::kMostQueuedBytes + 1, '\xff');
  store_.event = scriptorium::test::make_event("2", script);
  const auto whole = as(kBob).get({.id = "2"}, {}, 1);
  ASSERT_TRUE(whole && whole->size() == 1) << whole.error().message();
  EXPECT_TRUE(*whole->at(0).event->file("script")->bytes == script);
  store_.event = scriptorium::test::make_event("2", std::string(kMostMessageBytes / 2 + 1, '\0'));
  const auto large = as(kBob).get({.id = "2"}, {}, 1);
  ASSERT_TRUE(large && large->size() == 1);
  EXPECT_EQ(large->at(0).event->file("script")->bytes, nullptr);
  EXPECT_THAT(large->at(0).problems, ElementsAre(HasSubstr("too large")));
}

TEST_F(ServerTest, AClientThatGoesAwayStopsItsQuery) {
  start();
  auto client = std::make_unique<RawClient>(greeted(kAlice));
  client->ask(ask_held());
  store_.wait_begun(1);
  client.reset();
  store_.wait_ended(1);
}

TEST_F(ServerTest, AQueryEndsAtTheClientsDeadlineAndAtOurs) {
  start({.query = std::chrono::milliseconds{50}});
  const Query held{.text = "held"};
  EXPECT_FALSE(as(kAlice).search({.query = held})->finished);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(as(kAlice).search({.query = held, .deadline = now})->finished);
  for (const double seconds : {std::nan(""), -1.0, 1e300}) {
    RawClient client = greeted(kAlice);
    Ask ask = ask_held();
    ask.seconds = seconds;
    client.ask(ask);
    EXPECT_FALSE(client.receive()->answer.finished);
  }
}

TEST_F(ServerTest, AStoppedClientDoesNotWaitForTheAnswer) {
  start();
  std::stop_source stop;
  const std::jthread stopper([&] {
    store_.wait_begun(1);
    stop.request_stop();
  });
  const auto answer =
      as(kAlice).search({.query = {.text = "held"}, .after = "x", .stop = stop.get_token()});
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->finished);
  EXPECT_EQ(answer->next, "x");
  store_.wait_ended(1);
}

TEST_F(ServerTest, AClientThatAsksNothingIsClosed) {
  start({.idle = std::chrono::milliseconds{20}});
  EXPECT_FALSE(greeted(kAlice).receive());
}

TEST_F(ServerTest, AClientThatSendsHalfAQuestionIsClosed) {
  start({.patience = std::chrono::milliseconds{20}});
  RawClient half = greeted(kAlice);
  half.send(std::string("\0\0", 2));
  EXPECT_FALSE(half.receive());
}

TEST_F(ServerTest, AClientThatDoesNotReadItsAnswerIsClosedAndItsQueryStopped) {
  store_.runs_of_each = std::uint64_t{1} << 40;
  start({.patience = std::chrono::milliseconds{50}});
  RawClient client = greeted(kAlice);
  client.ask({.call = Ask::Call::kRuns, .store = "catalog"});
  store_.wait_ended(1);
}

TEST_F(ServerTest, AClientThatReadsSlowlyIsClosedThoughItTakesEachFrameInTime) {
  constexpr int kManyFrames = 200;  // at the test's pace, some times `patience`
  store_.runs_of_each = std::uint64_t{1} << 40;
  start({.patience = std::chrono::milliseconds{200}, .query = std::chrono::hours{1}});
  RawClient client = greeted(kAlice);
  client.ask({.call = Ask::Call::kRuns, .store = "catalog"});
  int taken = 0;
  while (taken < kManyFrames && !store_.ends_within(std::chrono::milliseconds{50})) {
    client.receive();
    ++taken;
  }
  EXPECT_LT(taken, kManyFrames);
}

TEST_F(ServerTest, RunsThatTakeTooLongAreAnErrorAndNoPart) {
  store_.runs_of_each = std::uint64_t{1} << 40;
  start({.query = std::chrono::milliseconds{50}});
  const auto runs = as(kAlice).runs({}, [](const JobRun&) {});
  ASSERT_FALSE(runs);
  EXPECT_THAT(runs.error().message(), HasSubstr("longer than the query service allows"));
}

TEST_F(ServerTest, HostileBytesAreRefusedAndNobodyElseNotices) {
  start();
  RawClient wrong = greeted(kAlice);
  wrong.send(frames_of("\x81\x81\x81").front());
  EXPECT_THAT(wrong.error(), HasSubstr("not understood"));
  RawClient large = greeted(kAlice);
  large.send("\xff\xff\xff\xff");
  EXPECT_THAT(large.error(), HasSubstr("too long"));
  EXPECT_FALSE(large.receive()) << "what follows has no beginning";
  EXPECT_THAT(ids(as(kBob).search({})), ElementsAre("2"));
}

TEST_F(ServerTest, ItEndsWhileQueriesRun) {
  start();
  RawClient client = greeted(kAlice);
  client.ask(ask_held());
  store_.wait_begun(1);
  server_.reset();
  store_.wait_ended(1);
  EXPECT_FALSE(client.receive());
}

TEST(RemoteStoreTest, SaysWhyThereIsNoService) {
  const scriptorium::test::TempDir dir;
  const std::string path = dir.path_to("s");
  EXPECT_EQ(RemoteStore::probe(path).error().kind(), ErrorKind::kVanished);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(RemoteStore::probe(path).error().message(), HasSubstr("does not run"));
  ASSERT_EQ(::listen(socket.get(), 5), 0);
  for (const auto& [answer, text] :
       {std::pair(encode(Reply{.protocol = kProtocol + 1}), "speaks version 3 of the protocol"),
        std::pair(std::string("HTTP/1.1 200 OK"), "not understood"),
        std::pair(encode(refusal({ErrorKind::kTransient, "too many"})), "too many"),
        std::pair(std::string(), "ended the connection")}) {
    const std::jthread server([&, bytes = answer] {
      const UniqueFd peer(::accept(socket.get(), nullptr, nullptr));
      const std::string frame = bytes.empty() ? "" : frames_of(bytes).front();
      ::send(peer.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    });
    EXPECT_THAT(RemoteStore::probe(path).error().message(), HasSubstr(text));
  }
}

}  // namespace
}  // namespace scriptorium::serve

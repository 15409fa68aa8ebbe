#include "core/serve/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/serve/samples.h"

namespace scriptorium::serve {
namespace {

using ::testing::HasSubstr;

Ask sent(const Ask& ask) {
  auto got = decode_ask(encode(ask));
  EXPECT_TRUE(got) << got.error().message();
  return got ? *std::move(got) : Ask{};
}

Reply sent(const Reply& reply) {
  auto got = decode_reply(encode(reply));
  EXPECT_TRUE(got) << got.error().message();
  return got ? *std::move(got) : Reply{};
}

TEST(ProtocolTest, EveryMemberOfAnAskArrives) {
  Ask ask{.call = Ask::Call::kRuns,
          .store = "catalog",
          .search = {.query = test::query(),
                     .limit = 1,
                     .after = test::kAnyBytes,
                     .most_lines = 2,
                     .context_lines = 3,
                     .count = true,
                     .facets = {QueryField::kUser, QueryField::kSoftware},
                     .facet_values = 4,
                     .exact = true},
          .seconds = 1.5,
          .selector = {.id = "4711", .cluster = "lab", .time = Timestamp{-1}},
          .family = ~std::uint64_t{0},
          .before = Timestamp{6},
          .limit = 7,
          .runs = {.from = {8}, .until = {9}, .modules = true, .origin = true}};
  const Ask got = sent(ask);
  EXPECT_EQ(got.call, ask.call);
  EXPECT_EQ(got.store, ask.store);
  EXPECT_EQ(got.search.query, ask.search.query);
  EXPECT_EQ(got.search.limit, ask.search.limit);
  EXPECT_EQ(got.search.after, ask.search.after);
  EXPECT_EQ(got.search.most_lines, ask.search.most_lines);
  EXPECT_EQ(got.search.context_lines, ask.search.context_lines);
  EXPECT_TRUE(got.search.count);
  EXPECT_EQ(got.search.facets, ask.search.facets);
  EXPECT_EQ(got.search.facet_values, ask.search.facet_values);
  EXPECT_TRUE(got.search.exact);
  EXPECT_EQ(got.seconds, ask.seconds);
  EXPECT_EQ(got.selector.id, ask.selector.id);
  EXPECT_EQ(got.selector.cluster, ask.selector.cluster);
  EXPECT_EQ(got.selector.time, ask.selector.time);
  EXPECT_EQ(got.family, ask.family);
  EXPECT_EQ(got.before, ask.before);
  EXPECT_EQ(got.limit, ask.limit);
  EXPECT_EQ(got.runs.from, ask.runs.from);
  EXPECT_EQ(got.runs.until, ask.runs.until);
  EXPECT_TRUE(got.runs.modules);
  EXPECT_TRUE(got.runs.origin);
}

TEST(ProtocolTest, AClientCannotSendAVisibility) {
  Ask ask;
  ask.search.visibility = {
      .all = false, .users = {{.name = "root"}}, .accounts = {{"lab", "chem"}}};
  ask.runs.visibility = ask.search.visibility;
  const Ask got = sent(ask);
  EXPECT_TRUE(got.search.visibility.users.empty());
  EXPECT_TRUE(got.runs.visibility.users.empty());
  EXPECT_EQ(encode(ask).find("chem"), std::string::npos);
}

TEST(ProtocolTest, EveryMemberOfAReplyArrives) {
  Reply reply{.kind = Reply::Kind::kError,
              .protocol = 77,
              .hits = {{.job = test::row(),
                        .lines = {{.part = JobPart::kEnvironment,
                                   .number = 3,
                                   .text = test::kAnyBytes,
                                   .marks = {{1, 2}, {3, 4}}}}}},
              .records = {},
              .rows = {test::row(), {}},
              .runs = {test::run(), {}},
              .answer = {.hits = {},
                         .next = "n",
                         .finished = false,
                         .searched_back_to = Timestamp{5},
                         .count = Searchable::Count{.jobs = 6, .at_least = true},
                         .facets = {{.field = QueryField::kAccount,
                                     .values = {{"chem", 7}},
                                     .exact = false,
                                     .over = 8}},
                         .problems = {"p1"}},
              .problems = {"p2"},
              .error = ErrorKind::kCorrupt,
              .message = "why"};
  const Reply got = sent(reply);
  EXPECT_EQ(got.kind, reply.kind);
  EXPECT_EQ(got.protocol, 77U);
  ASSERT_EQ(got.hits.size(), 1U);
  EXPECT_EQ(got.hits[0].job, test::row());
  ASSERT_EQ(got.hits[0].lines.size(), 1U);
  const Searchable::Line& line = got.hits[0].lines[0];
  EXPECT_EQ(line.part, JobPart::kEnvironment);
  EXPECT_EQ(line.number, 3U);
  EXPECT_EQ(line.text, test::kAnyBytes);
  EXPECT_EQ(line.marks, reply.hits[0].lines[0].marks);
  EXPECT_EQ(got.rows, reply.rows);
  EXPECT_EQ(got.runs, reply.runs);
  EXPECT_EQ(got.answer.next, "n");
  EXPECT_FALSE(got.answer.finished);
  EXPECT_EQ(got.answer.searched_back_to, Timestamp{5});
  ASSERT_TRUE(got.answer.count);
  EXPECT_EQ(got.answer.count->jobs, 6U);
  EXPECT_TRUE(got.answer.count->at_least);
  ASSERT_EQ(got.answer.facets.size(), 1U);
  const Searchable::Facet& facet = got.answer.facets[0];
  EXPECT_EQ(facet.field, QueryField::kAccount);
  ASSERT_EQ(facet.values.size(), 1U);
  EXPECT_EQ(facet.values[0].value, "chem");
  EXPECT_EQ(facet.values[0].jobs, 7U);
  EXPECT_FALSE(facet.exact);
  EXPECT_EQ(facet.over, 8U);
  EXPECT_EQ(got.answer.problems, reply.answer.problems);
  EXPECT_EQ(got.problems, reply.problems);
  EXPECT_EQ(got.error, reply.error);
  EXPECT_EQ(got.message, reply.message);
}

TEST(ProtocolTest, ARecordArrivesWithTheBytesOfItsFiles) {
  Event event = scriptorium::test::make_event_value("4711", test::kAnyBytes);
  event.captured_at = {1'795'275'000'123'456'789};
  const auto later = scriptorium::test::make_event("4711");
  Reply reply{.kind = Reply::Kind::kItems};
  reply.records = {{.job = test::row(),
                    .event = std::make_shared<const Event>(event),
                    .later = {later, later},
                    .problems = {"p"}},
                   {}};
  const Reply got = sent(reply);
  ASSERT_EQ(got.records.size(), 2U);
  const Searchable::Record& record = got.records[0];
  EXPECT_EQ(record.job, test::row());
  EXPECT_EQ(record.problems, reply.records[0].problems);
  ASSERT_NE(record.event, nullptr);
  const JsonOptions exact{.exact_times = true};
  EXPECT_EQ(event_json(*record.event, exact), event_json(event, exact));
  ASSERT_EQ(record.event->files.size(), event.files.size());
  EXPECT_EQ(*record.event->file("script")->bytes, test::kAnyBytes);
  EXPECT_EQ(record.later.size(), 2U);
  EXPECT_EQ(got.records[1].event, nullptr);

  Event without = event;
  without.files[0].bytes.reset();
  reply.records[0].event = std::make_shared<const Event>(without);
  EXPECT_EQ(sent(reply).records[0].event->files[0].bytes, nullptr);
}

TEST(ProtocolTest, WhatNoPeerOfOursSendsIsAnError) {
  const std::string good = encode(Ask{.search = {.query = test::query()}});
  ASSERT_TRUE(decode_ask(good));
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_FALSE(decode_ask(good.substr(0, cut))) << cut;
  EXPECT_FALSE(decode_ask(good + "x"));
  EXPECT_FALSE(decode_ask(std::string(kMostAskBytes, '\x81'))) << "lists in lists";
  EXPECT_FALSE(
      decode_ask("\xa1\x64"
                 "call"
                 "\x04"))
      << "a call that there is not";
  EXPECT_FALSE(
      decode_ask("\xa1\x65"
                 "limit"
                 "\x20"))
      << "-1 of something unsigned";
  EXPECT_FALSE(
      decode_ask("\xa1\x65"
                 "limit"
                 "\x61"
                 "1"))
      << "a text as a number";
  EXPECT_FALSE(decode_ask(std::string("\x9b\xff\xff\xff\xff\xff\xff\xff\xff", 9)));
  EXPECT_FALSE(decode_ask("\x7b\xff\xff\xff\xff\xff\xff\xff\xff"));
  EXPECT_FALSE(
      decode_reply("\xa1\x67"
                   "records"
                   "\x81\xa1\x65"
                   "event"
                   "\x61"
                   "x"));
}

TEST(ProtocolTest, AQueryThatNoParserMakesIsAnError) {
  for (const auto kind : {Query::Kind::kAnd, Query::Kind::kOr, Query::Kind::kNot}) {
    const auto refused = decode_ask(encode(Ask{.search = {.query = {.kind = kind}}}));
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(), HasSubstr("query"));
  }
  Query deep;
  for (int level = 0; level < 500; ++level) {
    Query outer{.kind = Query::Kind::kNot};
    outer.children.push_back(std::move(deep));
    deep = std::move(outer);
  }
  EXPECT_FALSE(decode_ask(encode(Ask{.search = {.query = deep}})));
}

TEST(ProtocolTest, MessagesAreJoinedFromTheirFramesHoweverTheyArrive) {
  const std::string small = "abc";
  const std::string large(kMostFrameBytes + 1, 'x');
  std::string bytes;
  for (const std::string& message : {small, large, small})
    for (const std::string& frame : frames_of(message)) bytes += frame;
  for (const std::size_t step : {std::size_t{1} << 12, bytes.size(), std::size_t{1} << 20}) {
    FrameReader reader(kMostMessageBytes);
    std::vector<std::string> got;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      reader.add(std::string_view(bytes).substr(at, step));
      while (true) {
        auto message = reader.next();
        ASSERT_TRUE(message);
        if (!*message) break;
        got.push_back(**std::move(message));
      }
    }
    EXPECT_EQ(got, (std::vector<std::string>{small, large, small}));
    EXPECT_TRUE(reader.is_empty());
  }
}

TEST(ProtocolTest, AMessageThatIsTooLongIsAnErrorBeforeItArrives) {
  FrameReader asks(kMostAskBytes);
  asks.add(std::string_view("\0\1\0\1", 4));  // 64 KiB and one
  EXPECT_FALSE(asks.next());
  FrameReader frames(kMostMessageBytes);
  frames.add(std::string_view("\0\x10\0\1", 4));  // 1 MiB and one
  EXPECT_FALSE(frames.next());
  FrameReader parts(kMostAskBytes);
  const std::string half(kMostAskBytes / 2 + 1, 'x');
  const std::string head("\x80\0\x80\1", 4);
  parts.add(head + half);
  EXPECT_TRUE(parts.next());
  parts.add(head + half);
  EXPECT_FALSE(parts.next());
  FrameReader empty(kMostAskBytes);
  empty.add(std::string_view("\x80\0\0\0", 4));
  EXPECT_FALSE(empty.next()) << "frames without bytes could follow without end";
}

}  // namespace
}  // namespace scriptorium::serve

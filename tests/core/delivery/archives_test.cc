#include "core/delivery/archives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/support/event_factory.h"

namespace scriptorium {
namespace {

using testing::HasSubstr;

// Gives one answer to all questions.
class OneAnswer final : public Sink, public ReadableSink {
 public:
  explicit OneAnswer(Result<std::shared_ptr<const Event>> answer) : answer_(std::move(answer)) {}
  Result<void> check() override { return {}; }
  void deliver(std::vector<Delivery> batch) override {
    for (Delivery& d : batch) d.acknowledge();
  }
  ReadableSink* readable() override { return this; }
  Result<std::shared_ptr<const Event>> fetch(const Event& /*locator*/) override { return answer_; }
  Result<Page> list(const Query& /*query*/, const std::string& /*after*/,
                    std::size_t /*limit*/) override {
    return Page{};
  }

 private:
  const Result<std::shared_ptr<const Event>> answer_;
};

class SeveralArchivesTest : public testing::Test {
 protected:
  void add(const std::string& name, Result<std::shared_ptr<const Event>> answer) {
    archives_.put(name, std::make_shared<OneAnswer>(std::move(answer)));
  }
  const std::shared_ptr<const Event> event_ = test::make_event("4711");
  const Error gone_{ErrorKind::kVanished, "not there"};
  const Error down_{ErrorKind::kTransient, "the disk has failed"};
  Archives archives_;
};

TEST_F(SeveralArchivesTest, OneThatCannotBeReadKeepsNobodyFromTheOthers) {
  add("a", down_);
  add("b", gone_);
  add("c", event_);
  const auto fetched = archives_.fetch(*event_);
  ASSERT_TRUE(fetched) << fetched.error().message();
  EXPECT_EQ(*fetched, event_);
}

TEST_F(SeveralArchivesTest, AnEventIsGoneOnlyIfEveryOneSaysSo) {
  add("a", gone_);
  add("b", down_);
  add("c", Error{ErrorKind::kCorrupt, "not what was stored"});
  auto fetched = archives_.fetch(*event_);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(fetched.error().message(), HasSubstr("b: the disk has failed"));
  archives_.keep_only({"a", "c"});
  fetched = archives_.fetch(*event_);
  ASSERT_FALSE(fetched);
  EXPECT_EQ(fetched.error().kind(), ErrorKind::kVanished);
  EXPECT_THAT(fetched.error().message(), HasSubstr("a, c: not there"));
}

TEST_F(SeveralArchivesTest, WithoutAnArchiveNothingIsGone) {
  EXPECT_EQ(archives_.fetch(*event_).error().kind(), ErrorKind::kTransient);
}

}  // namespace
}  // namespace scriptorium

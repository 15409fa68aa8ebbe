#include "core/query/stores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace scriptorium::query {
namespace {

using ::testing::HasSubstr;

class AnsweringStore : public Searchable {
 public:
  explicit AnsweringStore(Speed speed) : speed_(speed) {}
  Speed speed() const noexcept override { return speed_; }
  Result<Answer> search(const Request& request) override {
    ++asked;
    if (throws) throw std::runtime_error("out of cheese");
    if (error) return *error;
    Answer answer;
    answer.next = request.after + "!";
    if (answer.next.size() > pages) answer.next = repeats ? request.after : "";
    answer.finished = !stops;
    return answer;
  }
  Result<std::vector<Record>> get(const Selector& selector, const Visibility&,
                                  std::size_t) override {
    ++asked;
    if (error) return *error;
    if (selector.id != job) return std::vector<Record>{};
    Record record;
    record.job.id = job;
    return std::vector<Record>{record};
  }
  Result<std::vector<JobRow>> family(std::uint64_t, const Visibility&, std::optional<Timestamp>,
                                     std::size_t) override {
    return std::vector<JobRow>{};
  }

  std::string job;
  std::optional<Error> error;
  bool throws = false;
  std::size_t pages = 1000;  // before the last one
  bool repeats = false;      // the last page names itself as the next
  bool stops = false;
  int asked = 0;

 private:
  Speed speed_;
};

class StoresTest : public ::testing::Test {
 protected:
  StoresTest() { order_by_speed(stores_); }
  AnsweringStore scan_{Searchable::Speed::kScan};
  AnsweringStore remote_{Searchable::Speed::kRemote};
  AnsweringStore indexed_{Searchable::Speed::kIndexed};
  std::vector<Store> stores_{{"tree", &scan_}, {"elastic", &remote_}, {"index", &indexed_}};
};

TEST_F(StoresTest, AsksTheFastestAlone) {
  const auto asked = search_fastest(stores_, {.after = "x"});
  ASSERT_NE(asked.store, nullptr);
  EXPECT_EQ(asked.store->name, "index");
  EXPECT_EQ(asked.answer.next, "x!");
  EXPECT_EQ(scan_.asked + remote_.asked, 0);
}

TEST_F(StoresTest, AStoreThatFailsOrThrowsPassesTheQuestionOnAndIsNamed) {
  indexed_.throws = true;
  remote_.error = Error{ErrorKind::kTransient, "it is down"};
  const auto asked = search_fastest(stores_, {});
  ASSERT_NE(asked.store, nullptr);
  EXPECT_EQ(asked.store->name, "tree");
  ASSERT_EQ(asked.refused.size(), 2U);
  EXPECT_EQ(asked.refused[0].store, "index");
  EXPECT_THAT(asked.refused[0].error.message(), HasSubstr("out of cheese"));
  EXPECT_EQ(asked.refused[1].error.message(), "it is down");
}

TEST_F(StoresTest, AllPagesComeFromTheStoreThatAnsweredTheFirst) {
  indexed_.error = Error{ErrorKind::kTransient, "away"};
  remote_.pages = 3;
  std::string nexts;
  const Pages pages = each_page(stores_, {}, [&](const Searchable::Answer& answer) {
    nexts += answer.next + ".";
    indexed_.error.reset();  // it could answer now, but not what comes after the other's page
  });
  EXPECT_TRUE(pages.answered);
  ASSERT_EQ(pages.refused.size(), 1U);
  EXPECT_EQ(pages.refused[0].store, "index");
  EXPECT_EQ(nexts, "!.!!.!!!..");
  EXPECT_EQ(indexed_.asked, 1);
  EXPECT_EQ(remote_.asked, 4);
}

TEST_F(StoresTest, APageThatNamesItselfOrIsNotFinishedIsTheLast) {
  for (bool AnsweringStore::* ends : {&AnsweringStore::repeats, &AnsweringStore::stops}) {
    indexed_.pages = ends == &AnsweringStore::stops ? 1000 : 2;
    indexed_.*ends = true;
    int count = 0;
    EXPECT_TRUE(each_page(stores_, {}, [&](const Searchable::Answer&) { ++count; }).answered);
    EXPECT_EQ(count, ends == &AnsweringStore::stops ? 1 : 3);
    indexed_.*ends = false;
  }
}

TEST_F(StoresTest, AStoreThatFailsOnALaterPageIsNotContinuedByAnother) {
  int count = 0;
  const Pages pages = each_page(stores_, {}, [&](const Searchable::Answer&) {
    ++count;
    indexed_.error = Error{ErrorKind::kTransient, "away"};
  });
  EXPECT_FALSE(pages.answered);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(remote_.asked, 0);
  ASSERT_EQ(pages.refused.size(), 1U);
}

TEST_F(StoresTest, WhereNoneAnswersThereIsNoStore) {
  for (AnsweringStore* store : {&scan_, &remote_, &indexed_})
    store->error = Error{ErrorKind::kInvalidConfig, "no"};
  EXPECT_EQ(search_fastest(stores_, {}).store, nullptr);
  EXPECT_EQ(search_fastest(stores_, {}).refused.size(), 3U);
}

TEST_F(StoresTest, AJobThatTheFastestLacksIsSoughtInTheNext) {
  scan_.job = "4711";
  const auto asked = get_fastest(stores_, {.id = "4711"}, {}, 1);
  ASSERT_EQ(asked.answer.size(), 1U);
  EXPECT_EQ(asked.store->name, "tree");
  EXPECT_TRUE(get_fastest(stores_, {.id = "1"}, {}, 1).answer.empty());
}

}  // namespace
}  // namespace scriptorium::query

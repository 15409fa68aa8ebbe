#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/backends/catalog/catalog_events.h"
#include "tests/backends/catalog/search_lab.h"
#include "tests/support/queries.h"

// The account that the scheduler named last is the one that a job has.
namespace scriptorium::catalog {
namespace {

using test_support::job_at;
using test_support::usage_event;

class AccountsTest : public ::testing::Test {
 protected:
  using Accounts = std::map<std::string, std::string>;  // of each job; "": none

  // Stores them in every order, each under a job id of its own; "" as account: it names none.
  void put_in_every_order(const Event& job, const std::vector<Event>& uses,
                          const std::string& expected) {
    std::vector<std::size_t> order(uses.size() + 1);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    do {
      const std::string id = std::to_string(++last_id_);
      for (const std::size_t i : order) {
        Event event = i < uses.size() ? uses[i] : job;
        event.job.id = id;
        if (event.job.array) event.job.array->job_id = id;
        event.id = event_id(std::vector<std::string_view>{event.id, id});
        lab_.put({event});
      }
      expected_[id] = expected;
    } while (std::ranges::next_permutation(order).found);
  }

  // What the rows have, and the same as each way of asking has it.
  void expect_accounts(const char* when) {
    ASSERT_EQ(lab_.problem(), "") << when;
    Accounts found;
    std::map<std::string, std::uint64_t> counted;
    for (const auto& job : lab_.jobs()) found[job.row.id] = job.row.account.value_or("");
    EXPECT_EQ(found, expected_) << when;
    std::set<std::string> names;
    for (const auto& [id, account] : expected_) {
      if (!account.empty()) ++counted[account];
      names.insert(account);
    }
    names.insert({"first", "second", "third"});
    for (const std::string& name : names) {
      if (name.empty()) continue;
      std::set<std::string> with_account;
      for (const auto& [id, account] : expected_) {
        if (account == name) with_account.insert(id);
      }
      EXPECT_EQ(ids({.query = test::field_query(QueryField::kAccount, name)}), with_account)
          << when;
      const Visibility coordinator{.all = false, .users = {}, .accounts = {{"lab", name}}};
      EXPECT_EQ(ids({.visibility = coordinator}), with_account) << when << " " << name;
      EXPECT_EQ(ids({.query = test::text_query("srun"), .visibility = coordinator}), with_account);
      for (const auto& [id, account] : expected_) {
        const auto records = lab_.search().get({.id = id}, coordinator, 1);
        ASSERT_TRUE(records);
        EXPECT_EQ(!records->empty(), account == name) << when << " " << id;
      }
    }
    const auto answer = lab_.search().search({.limit = 0, .facets = {QueryField::kAccount}});
    ASSERT_TRUE(answer);
    std::map<std::string, std::uint64_t> sums;
    for (const auto& [value, jobs] : answer->facets.at(0).values) {
      if (jobs > 0) sums[value] = jobs;
    }
    EXPECT_EQ(sums, counted) << when;
    EXPECT_EQ(test_support::problems_of(lab_.root()), std::vector<std::string>{}) << when;
  }
  void expect_accounts_also_after_rewriting() {
    expect_accounts("as stored");
    lab_.seal();
    expect_accounts("sealed");
    lab_.store().close();
    EXPECT_EQ(test_support::move_all_segments(lab_.root()), "");
    expect_accounts("rewritten");
  }

  std::set<std::string> ids(Searchable::Request request) {
    request.limit = 1'000;
    std::set<std::string> found;
    const auto answer = lab_.search().search(request);
    EXPECT_TRUE(answer && answer->finished && answer->problems.empty());
    for (const Searchable::Hit& hit : answer->hits) found.insert(hit.job.id);
    return found;
  }

  static Event submission(std::optional<std::string> account) {
    Event event = job_at("1", 0, "#!/bin/sh\nsrun a\n");
    event.job.account = std::move(account);
    return event;
  }
  static Event use(int number, std::optional<std::string> account, const char* task = nullptr) {
    Event event = usage_event(submission(std::nullopt), "COMPLETED", 10'000 * number);
    event.job.account = std::move(account);
    if (task != nullptr) event.job.array = JobArray{.job_id = "1", .task_id = task};
    return event;
  }

  test::SearchLab lab_;
  int last_id_ = 0;
  Accounts expected_;
};

TEST_F(AccountsTest, TheNewestRunThatNamesOneDecidesInWhicheverOrderTheEventsCome) {
  put_in_every_order(submission("first"), {use(1, "second")}, "second");
  put_in_every_order(submission("first"), {use(1, "second"), use(2, "third")}, "third");
  put_in_every_order(submission("first"), {use(1, "second"), use(2, "first")}, "first");
  put_in_every_order(submission("first"), {use(1, "second"), use(2, std::nullopt)}, "second");
  put_in_every_order(submission(std::nullopt), {use(1, "second")}, "second");
  put_in_every_order(submission("first"), {use(1, std::nullopt)}, "first");
  expect_accounts_also_after_rewriting();
}

TEST_F(AccountsTest, AnArrayWhoseTasksNameDifferentAccountsIsOfNone) {
  Event array = submission("first");
  array.job.array = JobArray{.job_id = "1", .task_spec = "0-2"};
  put_in_every_order(array, {use(1, "second", "0"), use(2, "second", "1")}, "second");
  put_in_every_order(array, {use(1, "first", "0"), use(2, "second", "1")}, "");
  put_in_every_order(array, {use(1, "second", "0"), use(2, "first", "1"), use(3, "second", "2")},
                     "");
  put_in_every_order(array, {use(1, std::nullopt, "0"), use(2, "second", "1")}, "second");
  expect_accounts_also_after_rewriting();
}

TEST_F(AccountsTest, AnOwnerWhomNobodyConfirmedNamesNoAccount) {
  Event claimed = use(1, "second");
  claimed.user.verified = false;
  put_in_every_order(submission("first"), {claimed}, "first");
  expect_accounts_also_after_rewriting();
}

TEST_F(AccountsTest, AnOwnerThatBecomesKnownDoesNotBringTheFirstAccountBack) {
  Event unknown = submission(std::nullopt);
  unknown.user.verified = false;
  Event known = submission("first");
  known.id = event_id(std::vector<std::string_view>{known.id, "known"});
  known.replaces = unknown.id;
  lab_.put({unknown, use(1, "second"), known});
  expected_["1"] = "second";
  expect_accounts_also_after_rewriting();
}

}  // namespace
}  // namespace scriptorium::catalog

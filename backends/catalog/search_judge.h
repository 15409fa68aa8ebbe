#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/catalog/search_condition.h"
#include "backends/catalog/search_environments.h"
#include "backends/catalog/search_reader.h"
#include "core/api/searchable.h"

namespace scriptorium::catalog {

// Which jobs of one segment a reader may see. Answers are remembered, since owners repeat.
// Borrows both arguments of its constructor. Threads: one at a time.
class VisibleJobs {
 public:
  VisibleJobs(SearchReader& reader, const Visibility& visibility)
      : reader_(reader), visibility_(visibility) {}
  bool has(const RawJob& job);
  void forget() { known_.clear(); }  // after the segment's names may have changed

 private:
  SearchReader& reader_;
  const Visibility& visibility_;
  std::map<std::array<std::int64_t, 4>, bool> known_;  // by cluster, user, uid, account
};

// Decides a condition for the jobs of one segment, from their stored columns. Answers for names
// (users, directories, lists of modules) are remembered, since they repeat.
// Borrows both arguments of its constructor. Threads: one at a time.
class Judge {
 public:
  Judge(SearchReader& reader, const Condition& condition, const Visibility& visibility);

  bool is_visible(const RawJob& job) { return visible_.has(job); }
  // Of what is known without a text: the row, and its outcome if it is needed.
  Truth by_row(const RawJob& job);
  // What holds for every job with this script, or with one of a block's. An absent script counts as
  // empty.
  Truth by_script(std::string_view script);
  BlockLeaves by_block(const Block& scripts) const {
    return {condition_, Condition::Source::kScript, scripts};
  }
  // What holds for every job with this environment.
  Truth by_environment(std::int64_t content);
  // Everything. `script` if it is known already; both texts are read if they decide.
  bool matches(const RawJob& job, std::optional<std::string_view> script);

  // After the segment's names may have changed.
  void forget();

 private:
  // Answers by names.id: 0 unknown, 1 no, 2 yes.
  struct Memo {
    std::vector<std::uint8_t> answers;
  };
  template <typename Decide>
  bool remembered(Memo& memo, std::int64_t id, Decide decide);
  bool field_holds(std::size_t leaf, const RawJob& job);
  bool name_holds(std::size_t leaf, std::int64_t id, const Query& query);
  bool outcome_holds(std::size_t leaf, const RawJob& job);
  const RawOutcome& outcome_of(const RawJob& job);
  // Of a sealed environment: what is known of its block, and its place.
  struct Sealed {
    const BlockLeaves* leaves = nullptr;
    std::int64_t place = 0;
  };
  std::optional<Sealed> sealed_environment(std::int64_t content);

  SearchReader& reader_;
  const Condition& condition_;
  VisibleJobs visible_;
  EnvironmentLeaves environments_;
  std::vector<Memo> memos_;      // of each leaf
  std::vector<Memo> uid_memos_;  // of each leaf: a user by uid
  std::int64_t outcome_job_ = -1;
  RawOutcome outcome_;
};

}  // namespace scriptorium::catalog

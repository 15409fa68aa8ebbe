#include "core/query/visible_store.h"

namespace scriptorium::query {

Result<Searchable::Answer> VisibleStore::search(const Request& request) {
  Request own = request;
  own.visibility = visibility_;
  return store_.search(own);
}

Result<std::vector<Searchable::Record>> VisibleStore::get(const Selector& selector,
                                                          const Visibility& /*visibility*/,
                                                          std::size_t limit) {
  return store_.get(selector, visibility_, limit);
}

Result<std::vector<JobRow>> VisibleStore::family(std::uint64_t family,
                                                 const Visibility& /*visibility*/,
                                                 std::optional<Timestamp> before,
                                                 std::size_t limit) {
  return store_.family(family, visibility_, before, limit);
}

Result<Searchable::RunAnswer> VisibleStore::runs(const RunRequest& request,
                                                 const std::function<void(const JobRun&)>& use) {
  RunRequest own = request;
  own.visibility = visibility_;
  // A store behind the query service gives all that its caller may see.
  return store_.runs(own, [&](const JobRun& run) {
    if (is_visible(run, visibility_)) use(run);
  });
}

Result<Searchable::RunAnswer> VisibleStore::sums(const SumRequest& request,
                                                 const std::function<void(const RunSumRow&)>& use) {
  SumRequest own = request;
  own.visibility = visibility_;
  return store_.sums(own, use);
}

Result<std::uint64_t> VisibleStore::unfinished(Timestamp from, Timestamp until,
                                               const Visibility& /*visibility*/) {
  return store_.unfinished(from, until, visibility_);
}

}  // namespace scriptorium::query

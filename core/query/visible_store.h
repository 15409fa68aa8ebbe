#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/api/searchable.h"

namespace scriptorium::query {

// A store as one reader may see it: every call has this visibility, whatever the caller asks for.
// Borrows the store. Threads: as Searchable.
class VisibleStore final : public Searchable {
 public:
  VisibleStore(Searchable& store, Visibility visibility)
      : store_(store), visibility_(std::move(visibility)) {}

  Speed speed() const noexcept override { return store_.speed(); }
  Result<Answer> search(const Request& request) override;
  Result<std::vector<Record>> get(const Selector& selector, const Visibility& visibility,
                                  std::size_t limit) override;
  Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility& visibility,
                                     std::optional<Timestamp> before, std::size_t limit) override;
  Result<RunAnswer> runs(const RunRequest& request,
                         const std::function<void(const JobRun&)>& use) override;
  Result<RunAnswer> sums(const SumRequest& request,
                         const std::function<void(const RunSumRow&)>& use) override;
  Result<std::uint64_t> unfinished(Timestamp from, Timestamp until,
                                   const Visibility& visibility) override;

 private:
  Searchable& store_;
  const Visibility visibility_;
};

}  // namespace scriptorium::query

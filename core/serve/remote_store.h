#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/base/result.h"

namespace scriptorium::serve {

// A sink that the query service reads for its callers: each call is a question on its socket, and
// the service decides what the caller may see, not `visibility`.
// Fails: kTransient if the service cannot be reached or understood; else as its store.
// Threads: as Searchable; each call has a connection of its own.
class RemoteStore final : public Searchable {
 public:
  RemoteStore(std::string socket, std::string store)
      : socket_(std::move(socket)), store_(std::move(store)) {}

  // Whether the service answers there and speaks this version's protocol. kVanished: there is no
  // such socket on this host.
  static Result<void> probe(const std::string& socket);

  Speed speed() const noexcept override { return Speed::kIndexed; }
  Result<Answer> search(const Request& request) override;
  Result<std::vector<Record>> get(const Selector& selector, const Visibility& visibility,
                                  std::size_t limit) override;
  Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility& visibility,
                                     std::optional<Timestamp> before, std::size_t limit) override;
  // kInvalidConfig for a request with_event.
  Result<RunAnswer> runs(const RunRequest& request,
                         const std::function<void(const JobRun&)>& use) override;

 private:
  const std::string socket_;
  const std::string store_;
};

}  // namespace scriptorium::serve

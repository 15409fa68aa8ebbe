#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/base/time.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/cli/open_stores.h"

namespace scriptorium::cli {

// A place that keeps events usage.job and usage.node, for reports. The events are unchecked: other
// versions or programs may have written them.
class UsageRecords {
 public:
  struct Record {
    nlohmann::ordered_json event;
    std::string key;                      // differs for each record of this place
    std::optional<std::uint64_t> family;  // of its job, where the place knows families
  };
  using Use = std::function<void(Record record)>;

  UsageRecords() = default;
  UsageRecords(const UsageRecords&) = delete;
  UsageRecords& operator=(const UsageRecords&) = delete;
  virtual ~UsageRecords() = default;

  // Calls use() for each record of this job, of a task "4711_3", or of all tasks of the array 4711.
  // False if the place cannot be read, which it said.
  virtual bool of_job(const std::string& job, const Use& use) = 0;
  // For each record of the jobs that ended since then, of `user` if that is not empty. Some others
  // may be among them. False as above.
  virtual bool since(Timestamp since, const std::string& user, const Use& use) = 0;
  // Calls use() for each run of such a job, and perhaps for some that ended before or after. False
  // as above.
  virtual bool runs(const Searchable::RunRequest& request,
                    const std::function<void(const JobRun&)>& use) = 0;
  // The rows of Searchable::sums(). False as above.
  virtual bool sums(const Searchable::SumRequest& request,
                    const std::function<void(const RunSumRow&)>& use) {
    const Searchable::RunRequest of_runs{.from = request.bounds.front(),
                                         .until = request.bounds.back(),
                                         .modules = request.by == RunsBy::kModule};
    return runs(of_runs, [&](const JobRun& run) {
      if (run.ended_at >= of_runs.from && run.ended_at < of_runs.until)
        for_each_row(request.by, run, use);
    });
  }
  // Jobs of `user`, of all users if that is empty, that were submitted at `from` or later and
  // before `until`, and of which no end is known. Nothing if that would take long here.
  virtual std::optional<std::uint64_t> unfinished(Timestamp /*from*/, Timestamp /*until*/,
                                                  const std::string& /*user*/) {
    return std::nullopt;
  }
  // Folders and files that the caller may not read.
  virtual std::uint64_t closed() const noexcept { return 0; }
};

// Whether `event` is of this job, as of_job() means it.
bool is_of_job(const nlohmann::ordered_json& event, const std::string& job);

// The places that a report asks, the fastest first: the indexed sinks that take usage.job, then
// their file trees; with --archive only that tree. For modules, trees only if one of them has the
// scripts. None: the reason was printed, and `code` is set.
struct UsagePlaces {
  std::vector<std::unique_ptr<UsageRecords>> list;
  std::shared_ptr<const OpenStores> stores;  // all that can be searched; null with --archive
};
UsagePlaces usage_places_or_say(const Arguments& arguments, Console& console, int& code);

}  // namespace scriptorium::cli

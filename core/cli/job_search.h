#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/api/searchable.h"
#include "core/cli/console.h"
#include "core/cli/job_ids.h"
#include "core/cli/open_stores.h"
#include "core/cli/stored_job.h"

namespace scriptorium::cli {

// Every capture of one job: in the journal and in the sinks. An indexed store is asked instead of
// the sinks; they are walked only if it does not have the job.
// Borrows all but the name. Threads: one.
class JobSearch {
 public:
  // `said`: the problems that were printed, which are not printed again.
  JobSearch(OpenStores& stores, JobName name, std::set<std::string>& said, Console& console);

  // Newest first. If the job has no script of its own, the ids that the sources suggest are tried:
  // a task's script is its array's.
  std::vector<StoredCapture> run();

  // What a searchable sink knows of this capture; null if none does.
  const Searchable::Record* record_of(const StoredCapture& capture);

  // The number of components of a heterogeneous job, given one of them: their ids follow the
  // leader's. 0: unknown.
  std::size_t count_components(const std::string& leader);

  // True if a place could not be searched, so the result may be incomplete.
  bool anything_failed() const noexcept { return failed_; }

 private:
  void search(const std::string& job);
  std::vector<StoredCapture> result();
  bool belongs(const StoredCapture& capture) const;
  std::vector<std::string> other_ids();
  void ask_journal();
  bool ask_index();
  void ask_sink(const OpenStores::NamedSink& sink);
  void add(const std::string& sink, StoredJob job);
  void say(const std::string& text);
  void progress(const std::string& text);

  OpenStores& stores_;
  const JobName wanted_;  // by the caller
  std::string job_;       // the id of the current search
  std::set<std::string>& said_;
  Console& console_;
  std::map<std::string, StoredCapture> by_id_;
  std::map<std::string, Searchable::Record> records_;  // by the event's id
  std::set<std::string> asked_;                        // ids for which records_ is filled
  bool failed_ = false;
};

}  // namespace scriptorium::cli

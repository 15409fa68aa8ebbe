#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/journal/journal.h"

// Random work on a journal, what the journal promises meanwhile, and whether a journal that was
// opened again keeps it: for tests that kill the process or cut the power in between.
//
// Each promise is one line, noted when it is made: "A job" = the event is durable; "T sink job
// outcome" = the journal was given this outcome; "C" = all outcomes so far are committed; "S" = a
// process starts.
namespace scriptorium::test {

constexpr const char* kWorkloadSinks[] = {"archive", "search"};

// A job whose script has about so many bytes; few different short ones, so that contents repeat.
std::shared_ptr<const Event> workload_job(const std::string& id, std::size_t bytes);

using Note = std::function<void(const std::string& line)>;
// Every event of the workload, by job id: what an archive of it could give back.
using StoredEvents = std::map<std::string, std::shared_ptr<const Event>>;
Journal::Archive archive_of(const StoredEvents& stored);

struct Workload {
  unsigned seed = 1;  // also names the jobs
  int rounds = 40;
  unsigned most_appends = 6;  // in one round
  std::function<std::size_t(std::mt19937&)> script_bytes = [](auto&) { return 0; };
  bool retries = false;                        // parked deliveries are tried again
  bool releases = false;                       // what the sink "archive" has leaves the journal
  std::chrono::milliseconds patience{30'000};  // with a commit
};
// Appends, resolutions and settlements. Fails the test if the journal does.
class WorkloadRun {
 public:
  WorkloadRun(Journal& journal, Workload workload, Note note, StoredEvents& stored);
  void run();
  std::size_t released() const { return released_; }

 private:
  void append_some(int round);
  void resolve_some();
  void settle_some(const std::string& sink);
  void release();
  void flush();

  Journal& journal_;
  const Workload workload_;
  const Note note_;
  StoredEvents& stored_;
  std::mt19937 random_;
  std::map<std::string, Journal::SinkId> ids_;
  std::map<std::string, std::uint64_t> after_;
  std::size_t released_ = 0;
};

// What a journal holds, as a start finds it.
struct JournalContent {
  std::string problem;      // why it did not open, or is not intact
  std::string quarantined;  // the damage, if it was quarantined
  struct Sink {
    bool is_known = false;  // before it was registered
    std::set<std::string> waiting, parked, dead;
  };
  std::map<std::string, Sink> sinks;
  std::set<std::string> unresolved;

  bool has(const std::string& sink, const std::string& job) const;
};
JournalContent open_and_read(const std::string& directory, const StoredEvents& stored);

class Promises {
 public:
  explicit Promises(const std::vector<std::string>& lines);
  // Which promise the journal does not keep; "" = it keeps all.
  std::string broken_by(const JournalContent& content) const;
  const std::set<std::string>& durable() const { return durable_; }

 private:
  using Outcomes = std::map<std::string, std::map<std::string, std::set<std::string>>>;
  std::string broken_for(const std::string& sink, const JournalContent& content) const;

  std::set<std::string> durable_;
  Outcomes committed_, ever_;  // sink -> job -> outcomes
};

}  // namespace scriptorium::test

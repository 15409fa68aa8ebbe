#include "tests/core/journal/journal_workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::test {

std::shared_ptr<const Event> workload_job(const std::string& id, std::size_t bytes) {
  const std::size_t hash = std::hash<std::string>{}(id);
  std::string script = "#!/bin/bash\n# " + std::to_string(hash % 20) + "\n";
  std::mt19937_64 random(hash);
  while (script.size() < bytes) script += static_cast<char>('!' + random() % 90);
  return make_event(id, script);
}

Journal::Archive archive_of(const StoredEvents& stored) {
  return [&stored](const Event& locator) -> Result<std::shared_ptr<const Event>> {
    const auto found = stored.find(locator.job.id);
    if (found == stored.end()) return Error{ErrorKind::kVanished, "not in the archive"};
    return found->second;
  };
}

WorkloadRun::WorkloadRun(Journal& journal, Workload workload, Note note, StoredEvents& stored)
    : journal_(journal),
      workload_(std::move(workload)),
      note_(std::move(note)),
      stored_(stored),
      random_(workload_.seed) {}

void WorkloadRun::run() {
  journal_.set_archive(archive_of(stored_));
  for (const char* name : kWorkloadSinks) {
    auto id = journal_.register_sink(name, {"*"});
    ASSERT_TRUE(id) << id.error().message();
    ids_[name] = *id;
    after_[name] = journal_.cursor(*id);
  }
  for (int round = 0; round < workload_.rounds; ++round) {
    append_some(round);
    if (random_() % 2 == 0) resolve_some();
    for (const char* name : kWorkloadSinks) {
      if (random_() % 3 != 0) settle_some(name);
    }
    if (random_() % 2 == 0) flush();
    if (workload_.releases && round % 3 == 2) release();
    if (testing::Test::HasFatalFailure()) return;
  }
  flush();
}

void WorkloadRun::append_some(int round) {
  const auto count = random_() % workload_.most_appends + 1;
  for (unsigned i = 0; i < count; ++i) {
    const std::string id =
        std::to_string(workload_.seed) + "-" + std::to_string(round) + "-" + std::to_string(i);
    const auto event = workload_job(id, workload_.script_bytes(random_));
    stored_[id] = event;
    journal_.append({.source = "slurm",
                     .event = event,
                     .resolve_first = random_() % 3 == 0,
                     .mark = CaptureMark{.entry = "job." + id, .event_id = event->id},
                     .durable = [note = note_, id](bool) { note("A " + id); }},
                    {});
  }
}

void WorkloadRun::resolve_some() {
  std::vector<Journal::Resolved> resolved;
  for (auto& item : journal_.unresolved("slurm", 0, 5))
    resolved.push_back({item.ticket, item.event});
  journal_.resolved(std::move(resolved));
}

void WorkloadRun::settle_some(const std::string& sink) {
  auto items = journal_.read(ids_[sink], after_[sink], 1 + random_() % 8, 1U << 30);
  ASSERT_TRUE(items) << items.error().message();
  if (workload_.retries && random_() % 4 == 0) {
    flush();  // or what was just settled would be there still
    auto parked = journal_.parked(ids_[sink], 3);
    ASSERT_TRUE(parked) << parked.error().message();
    items->insert(items->begin(), parked->begin(), parked->end());
  }
  std::vector<Journal::Settle> settlements;
  for (const auto& item : *items) {
    ASSERT_TRUE(item.event);
    const unsigned choice = std::min(random_() % 8, 2UL);
    note_("T " + sink + " " + item.event->job.id + " " +
          std::array{"dead", "parked", "acknowledged"}[choice]);
    settlements.push_back(
        {.sequence = item.sequence,
         .outcome = std::array{Outcome::kRejected, Outcome::kRetry, Outcome::kAcknowledged}[choice],
         .reason = "by chance"});
    after_[sink] = std::max(after_[sink], item.sequence);
  }
  if (!settlements.empty()) journal_.settle(ids_[sink], std::move(settlements), after_[sink]);
}

void WorkloadRun::release() {
  std::uint64_t after = 0;
  auto events = journal_.releasable("archive", after, 100);
  ASSERT_TRUE(events) << events.error().message();
  released_ += events->size();
  const auto done = journal_.release(*std::move(events));
  ASSERT_TRUE(done) << done.error().message();
}

void WorkloadRun::flush() {
  ASSERT_TRUE(journal_.flush(std::chrono::steady_clock::now() + workload_.patience));
  note_("C");
}

bool JournalContent::has(const std::string& sink, const std::string& job) const {
  const Sink& view = sinks.at(sink);
  return unresolved.contains(job) || view.waiting.contains(job) || view.parked.contains(job) ||
         view.dead.contains(job);
}

namespace {

// "" or what is wrong with the sink.
std::string read_sink(Journal& journal, const std::string& name, JournalContent::Sink& view) {
  const auto names = journal.unregistered_sinks();
  view.is_known = std::find(names.begin(), names.end(), name) != names.end();
  auto sink = journal.register_sink(name, {"*"});
  if (!sink) return sink.error().message();
  auto items = journal.read(*sink, journal.cursor(*sink), 1'000'000, 1U << 31);
  auto parked = journal.parked(*sink, 1'000'000);
  auto letters = journal.dead_letters(name, 1'000'000);
  if (!items || !parked || !letters) return "cannot be read";
  for (const auto& item : *items) view.waiting.insert(item.event ? item.event->job.id : "damaged");
  for (const auto& item : *parked) view.parked.insert(item.event ? item.event->job.id : "damaged");
  for (const auto& letter : *letters) view.dead.insert(letter.job_id);
  const auto usage = journal.usage();
  const auto state = std::find_if(usage.sinks.begin(), usage.sinks.end(),
                                  [&](const auto& s) { return s.name == name; });
  if (state == usage.sinks.end()) return "is not listed";
  if (state->waiting != view.waiting.size() + view.parked.size() || state->dead != view.dead.size())
    return "is counted wrongly";
  return "";
}

}  // namespace

JournalContent open_and_read(const std::string& directory, const StoredEvents& stored) {
  JournalContent content;
  RecordingLogger log;
  auto opened = Journal::open({.directory = directory, .cache_bytes = 0}, log, system_clock());
  if (!opened) {
    content.problem = opened.error().message();
    return content;
  }
  Journal& journal = **opened;
  journal.set_archive(archive_of(stored));
  if (!journal.open_report().quarantined.empty())
    content.quarantined = journal.open_report().damage;
  if (auto intact = journal.verify(); !intact) content.problem = intact.error().message();
  for (const auto& item : journal.unresolved("slurm", 0, 100'000))
    content.unresolved.insert(item.event->job.id);
  for (const char* name : kWorkloadSinks) {
    const std::string wrong = read_sink(journal, name, content.sinks[name]);
    if (!wrong.empty()) content.problem = "sink " + std::string(name) + " " + wrong;
  }
  return content;
}

Promises::Promises(const std::vector<std::string>& lines) {
  Outcomes told;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string what, sink, job, outcome;
    words >> what;
    if (what == "A" && words >> job) durable_.insert(job);
    if (what == "T" && words >> sink >> job >> outcome) {
      told[sink][job].insert(outcome);
      ever_[sink][job].insert(outcome);
    }
    if (what == "C") committed_ = told;
    // What the process before was not told to be committed may or may not be there.
    if (what == "S") told = committed_;
  }
}

std::string Promises::broken_by(const JournalContent& content) const {
  if (!content.problem.empty()) return content.problem;
  if (!content.quarantined.empty()) return "taken for damaged: " + content.quarantined;
  for (const char* name : kWorkloadSinks) {
    if (const std::string broken = broken_for(name, content); !broken.empty())
      return broken + " (" + name + ")";
  }
  return "";
}

std::string Promises::broken_for(const std::string& sink, const JournalContent& content) const {
  const JournalContent::Sink& view = content.sinks.at(sink);
  const auto was_ever = [&](const std::string& job, const std::string& outcome) {
    const auto jobs = ever_.find(sink);
    if (jobs == ever_.end()) return false;
    const auto found = jobs->second.find(job);
    return found != jobs->second.end() && found->second.contains(outcome);
  };
  for (const std::string& job : durable_) {
    if (!content.has(sink, job) && !was_ever(job, "acknowledged"))
      return job + " was durable, and is lost";
  }
  const auto committed = committed_.find(sink);
  if (committed == committed_.end() || committed->second.empty()) return "";
  if (!view.is_known) return "the sink is forgotten";
  for (const auto& [job, outcomes] : committed->second) {
    if (view.waiting.contains(job)) return job + " was settled, and comes again";
    if (outcomes.contains("acknowledged") && (view.parked.contains(job) || view.dead.contains(job)))
      return job + " was acknowledged, and comes again";
    if (was_ever(job, "acknowledged")) continue;
    if (outcomes.contains("dead") && !view.dead.contains(job))
      return job + " was a dead letter, and is lost";
    if (outcomes.contains("parked") && !was_ever(job, "dead") && !view.parked.contains(job))
      return job + " was parked, and is lost";
  }
  return "";
}

}  // namespace scriptorium::test

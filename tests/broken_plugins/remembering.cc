// Nothing is wrong with this one: a sink that can be searched and has a few jobs from the
// beginning, for the tests of the commands. 101 and 102 worked, 103 is an edit of them that failed,
// twice; 200 is another user's.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/api/kit/search/job_facts.h"
#include "core/api/kit/search/query_matcher.h"
#include "core/base/time.h"
#include "tests/broken_plugins/plain_sink.h"
#include "tests/support/event_factory.h"

namespace scriptorium::broken {
namespace {

constexpr std::int64_t kHour = 3600 * kSecond;

class Remembered : public Searchable {
 public:
  Remembered() {
    add("200", 3, "bob", "#!/usr/bin/python3\nprint('hello')\n", {}, "COMPLETED", 0);
    add("103", 2, "alice", script("32", "GCC/13"), {"OMP_NUM_THREADS=8", "PATH=/opt/13:/bin"},
        "FAILED", 2);
    add("102", 1, "alice", script("16", "GCC/12"), {"OMP_NUM_THREADS=4", "PATH=/opt/12:/bin"},
        "COMPLETED", 0);
    add("101", 0, "alice", script("16", "GCC/12"), {"OMP_NUM_THREADS=4", "PATH=/opt/12:/bin"},
        "COMPLETED", 0);
    if (std::getenv("REMEMBER_ARRAY") != nullptr) add_array();
    if (std::getenv("REMEMBER_RUNNING") != nullptr) {
      add("104", 4, "alice", script("8", "GCC/13"), {}, "", 0);
      jobs_.back().job = row_of(*jobs_.back().event);
    }
    jobs_[1].job.modules = {"GCC/13"};
    jobs_[1].job.software = {"conda torch"};
    jobs_[2].job.modules = jobs_[3].job.modules = {"GCC/12"};
  }

  Speed speed() const noexcept override { return Speed::kIndexed; }

  Result<Answer> search(const Request& request) override {
    auto matcher = QueryMatcher::create(request.query);
    if (!matcher) return matcher.error();
    Answer answer;
    std::uint64_t found = 0;
    std::map<std::string, std::uint64_t> values;
    const std::size_t begin = request.after.empty() ? 0 : std::stoul(request.after);
    for (std::size_t i = begin; i < jobs_.size(); ++i) {
      const JobTexts texts{[&](JobPart part) { return text(jobs_[i], part); }};
      if (!matcher->matches(jobs_[i].job, texts)) continue;
      if (request.limit > 0 && answer.hits.size() == request.limit) {
        answer.next = std::to_string(i);
        break;
      }
      ++found;
      for (const QueryField field : request.facets) {
        for (const std::string& value : field_values(field, jobs_[i].job)) ++values[value];
      }
      if (request.limit > 0)
        answer.hits.push_back(
            {jobs_[i].job, matcher->lines(texts, request.most_lines, request.context_lines)});
    }
    if (request.count) answer.count = Count{.jobs = found};
    if (!request.facets.empty()) {
      Facet facet{.field = request.facets.front()};
      for (const auto& [value, jobs] : values) facet.values.push_back({value, jobs});
      answer.facets.push_back(std::move(facet));
    }
    return answer;
  }

  Result<std::vector<Record>> get(const Selector& selector, const Visibility&,
                                  std::size_t limit) override {
    std::vector<Record> found;
    for (const Record& record : jobs_) {
      if (record.job.id == selector.id &&
          record.job.cluster == selector.cluster.value_or(record.job.cluster) &&
          found.size() < limit)
        found.push_back(record);
    }
    return found;
  }

  Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility&,
                                     std::optional<Timestamp> before, std::size_t limit) override {
    std::vector<JobRow> found;
    for (const Record& record : jobs_) {
      if (record.job.family == family && (!before || record.job.time < *before) &&
          found.size() < limit)
        found.push_back(record.job);
    }
    return found;
  }

 private:
  static std::string script(const std::string& tasks, const std::string& module) {
    return "#!/bin/bash\n#SBATCH --time=00:10:00\nmodule load " + module + "\nmpirun -np " + tasks +
           " gmx mdrun\n";
  }
  static std::string_view text(const Record& record, JobPart part) {
    const EventFile* file = record.event->file(part == JobPart::kScript ? "script" : "environment");
    return file == nullptr ? std::string_view{} : std::string_view(*file->bytes);
  }
  void add(const std::string& id, std::int64_t hour, const std::string& user,
           const std::string& script, const std::vector<std::string>& variables,
           const std::string& state, std::int64_t exit_code) {
    Event event = test::make_event_value(id, script, variables);
    event.time.nanoseconds += hour * kHour;
    event.job.submitted_at = event.time;
    event.user.name = user;
    event.script->interpreter = script.substr(2, script.find('\n') - 2);
    Record record;
    record.event = std::make_shared<const Event>(std::move(event));
    record.job = row_of(*record.event);
    record.job.family = user == "alice" ? 7 : 8;
    record.job.state = state;
    record.job.exit_code = exit_code;
    record.job.elapsed_seconds = 90;
    record.job.cpu_seconds = 7200;
    record.job.lives = 1;
    Event usage = *record.event;
    usage.kind = "usage.job";
    usage.id = "use of " + id;
    usage.files.clear();
    usage.script.reset();
    usage.extra_json = R"({"job":{"state":")" + state +
                       R"("},"usage":{"started_at":"2026-11-21T02:00:00Z",)"
                       R"("ended_at":"2026-11-21T02:01:30Z","elapsed_seconds":90}})";
    record.job.ended_at = parse_rfc3339("2026-11-21T02:01:30Z");
    record.later.push_back(std::make_shared<const Event>(std::move(usage)));
    jobs_.push_back(std::move(record));
  }

  // The oldest job: an array whose first task failed early, and whose second one ended late.
  void add_array() {
    add("50", -1, "alice", script("1", "GCC/12"), {}, "", 0);
    Record& record = jobs_.back();
    const Event use = *record.later.front();
    record.job = row_of(*record.event);
    record.job.array_job_id = "50";
    record.later.clear();
    for (const auto& [task, state, day] :
         {std::tuple{"0", "FAILED", "21"}, std::tuple{"1", "COMPLETED", "23"}}) {
      Event run = use;
      run.id = std::string("use of 50_") + task;
      run.job.id = std::string("6") + task;
      run.job.array = JobArray{.job_id = "50", .task_id = task};
      run.extra_json = std::string(R"({"job":{"state":")") + state +
                       R"("},"usage":{"started_at":"2026-11-20T02:00:00Z","ended_at":"2026-11-)" +
                       day + R"(T02:01:30Z","elapsed_seconds":90}})";
      join(record.job, run);
      record.later.push_back(std::make_shared<const Event>(std::move(run)));
    }
  }

  std::vector<Record> jobs_;  // newest first
};

class RememberingSink : public PlainSink {
 public:
  Searchable* searchable() override { return &remembered_; }

 private:
  Remembered remembered_;
};

Result<std::unique_ptr<Sink>> create_remembering(const Table&, const PluginContext&) {
  return std::unique_ptr<Sink>(new RememberingSink());
}

}  // namespace
}  // namespace scriptorium::broken

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin = {
    .kind = scriptorium::PluginKind::kSink,
    .name = "remembering",
    .summary = "can be searched",
    .options = &scriptorium::broken::no_options,
    .check = &scriptorium::broken::no_check,
    .create_sink = &scriptorium::broken::create_remembering,
};

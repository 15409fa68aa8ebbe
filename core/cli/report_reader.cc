#include "core/cli/report_reader.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/api/kit/search/job_facts.h"
#include "core/base/text.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/open_stores.h"
#include "core/cli/report_archive.h"
#include "core/cli/script_modules.h"
#include "core/cli/signal_stop.h"
#include "core/config/config.h"
#include "core/query/usage.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kJobsOfAPage = 200;

bool takes(const SinkInstance& sink, std::string_view kind) {
  return std::any_of(sink.common.kinds.begin(), sink.common.kinds.end(),
                     [&](const std::string& pattern) { return glob_match(pattern, kind); });
}

// How far a report is, on a terminal.
class Counter {
 public:
  Counter(Console& console, const char* noun) : console_(console), noun_(noun) {}
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
  ~Counter() {
    if (drawn_) console_.err << "\r\033[K" << std::flush;
  }

  void add(std::uint64_t count = 1) {
    const std::uint64_t before = count_ / 1000;
    count_ += count;
    if (!console_.out_is_terminal || count_ / 1000 == before) return;
    drawn_ = true;
    console_.err << "\r\033[K" << count_ << ' ' << noun_ << " ..." << std::flush;
  }

 private:
  Console& console_;
  const char* noun_;
  std::uint64_t count_ = 0;
  bool drawn_ = false;
};

// ---- file trees

// A user who may only read his own folder of the tree gets the contents of that folder.
std::string own_folder(const std::string& user) {
  if (!user.empty()) return user.find('/') == std::string::npos ? user : std::string{};
  const char* name = std::getenv("USER");
  return name != nullptr && std::string_view(name).find('/') == std::string_view::npos ? name : "";
}

class Trees final : public UsageRecords {
 public:
  // The roots of the trees that hold scripts are only read for their modules.
  Trees(std::vector<std::string> roots, std::vector<std::string> script_roots, Console& console)
      : roots_(std::move(roots)), script_roots_(std::move(script_roots)), console_(console) {}

  bool of_job(const std::string& job, const Use& use) override {
    bool found = false;
    bool of_array = false;
    const Use take = [&](Record record) {
      if (!is_of_job(record.event, job)) return;
      found = true;
      of_array = of_array || !record.event["job"].value("array", Json()).is_null();
      use(std::move(record));
    };
    RecordWalk walk{.only_directory = own_folder("")};
    // The path nearly always contains the id, but an array's tasks are stored under their own
    // numbers.
    walk.wanted = [&](std::string_view path) { return path.find(job) != std::string_view::npos; };
    if (!each(walk, {}, take)) return false;
    walk.wanted = nullptr;
    if (!found || of_array) each(walk, {}, take);
    return true;
  }

  bool since(Timestamp since, const std::string& user, const Use& use) override {
    // Records without the user's name, as written in JSON, are not parsed: most are of others.
    const std::string name =
        user.empty() ? "" : Json(user).dump(-1, ' ', false, Json::error_handler_t::replace);
    return each({.since = since, .only_directory = own_folder(user)}, name, use);
  }

  bool runs(const Searchable::RunRequest& request,
            const std::function<void(const JobRun&)>& use) override {
    std::set<std::string> seen;  // two trees may have the same
    ScriptModules by_script;
    const bool read =
        each_text(roots_, {.since = request.from, .only_directory = own_folder("")},
                  [&](const std::string& /*path*/, const std::string& bytes) {
                    if (bytes.find("\"usage.job\"") == std::string::npos) return;
                    const auto event = event_from_json(bytes);
                    if (!event || !seen.insert(event->id).second) return;
                    JobRow row;
                    auto run = join(row, *event);
                    if (!run) return;
                    if (request.origin) {
                      run->cluster = event->cluster;
                      run->key = event->id;
                      if (request.with_event && request.with_event(*run))
                        run->event = std::make_shared<const Event>(*event);
                    }
                    if (request.modules) {
                      if (run->ended_at >= request.from && run->ended_at < request.until)
                        by_script.add(*event, *std::move(run));
                    } else {
                      use(*run);
                    }
                  });
    if (!read || !request.modules) return read;
    read_scripts(by_script);
    if (const std::size_t without = by_script.use_all(use); without > 0) {
      console_.err << "scriptorium: " << without << (without == 1 ? " job has" : " jobs have")
                   << " no script in the file tree, so the modules are not known\n";
    }
    return true;
  }

  std::uint64_t closed() const noexcept override { return closed_; }

 private:
  bool each(RecordWalk walk, const std::string& must_hold, const Use& use) {
    return each_text(roots_, std::move(walk),
                     [&](const std::string& path, const std::string& bytes) {
                       if (bytes.find(must_hold) == std::string::npos) return;
                       Json event = Json::parse(bytes, nullptr, false);
                       if (event.is_object()) use({std::move(event), path, std::nullopt});
                     });
  }

  // A script is older than its job's end, so only its name says whether it is needed.
  void read_scripts(ScriptModules& runs) {
    RecordWalk walk{.scripts = true, .only_directory = own_folder("")};
    walk.wanted = [&](std::string_view path) { return runs.wants(path); };
    const std::uint64_t closed = closed_;
    each_text(script_roots_, walk, [&](const std::string& /*path*/, const std::string& bytes) {
      if (bytes.find("\"job.script\"") == std::string::npos) return;
      if (const auto event = event_from_json(bytes); event && event->kind == "job.script")
        runs.take(*event);
    });
    closed_ = closed;  // in most trees they are the same
  }

  // False if no tree could be read.
  bool each_text(
      const std::vector<std::string>& roots, RecordWalk walk,
      const std::function<void(const std::string& path, const std::string& bytes)>& use) {
    bool any = false;
    for (const std::string& root : roots) {
      walk.root = root;
      Counter counter(console_, "records");
      const auto counts =
          walk_records(walk, [&](const std::string& path, const std::string& bytes) {
            counter.add();
            use(path, bytes);
          });
      if (!counts) {
        console_.err << "scriptorium: " << printable(counts.error().message()) << "\n";
        continue;
      }
      any = true;
      closed_ += counts->closed;
    }
    return any;
  }

  const std::vector<std::string> roots_;
  const std::vector<std::string> script_roots_;
  Console& console_;
  std::uint64_t closed_ = 0;
};

// ---- indexed sinks

Query field_node(QueryField field, std::string text) {
  return {.kind = Query::Kind::kField, .field = field, .text = std::move(text)};
}

Query joined(Query::Kind kind, Query a, Query b) {
  Query query{.kind = kind};
  query.children.push_back(std::move(a));
  query.children.push_back(std::move(b));
  return query;
}

class Stores final : public UsageRecords {
 public:
  Stores(std::shared_ptr<const OpenStores> open, std::vector<query::Store> stores, Console& console)
      : open_(std::move(open)),
        stores_(std::move(stores)),
        signal_(console.owns_process),
        console_(console) {}

  // Another place is asked if no sink can answer, so that is not said.
  void keep_quiet() noexcept { is_quiet_ = true; }

  bool runs(const Searchable::RunRequest& request,
            const std::function<void(const JobRun&)>& use) override {
    Searchable::RunRequest asked = request;
    asked.stop = signal_.token();
    return first_that([&](Searchable& store, const Counted& counted) {
      return store.runs(asked, [&](const JobRun& run) {
        counted(1);
        use(run);
      });
    });
  }

  bool sums(const Searchable::SumRequest& request,
            const std::function<void(const RunSumRow&)>& use) override {
    Searchable::SumRequest asked = request;
    asked.stop = signal_.token();
    return first_that([&](Searchable& store, const Counted& counted) {
      return store.sums(asked, [&](const RunSumRow& row) {
        if (!row.name) counted(row.sum.jobs);
        use(row);
      });
    });
  }

  std::optional<std::uint64_t> unfinished(Timestamp from, Timestamp until,
                                          const std::string& user) override {
    return query::unfinished_jobs(stores_, from, until, user, signal_.token());
  }

  bool of_job(const std::string& job, const Use& use) override {
    if (job.find('*') != std::string::npos) return true;  // no id: it would match other jobs
    const std::string array = job.substr(0, job.find('_'));
    return each(joined(Query::Kind::kOr, field_node(QueryField::kJob, job),
                       field_node(QueryField::kArray, array)),
                use);
  }

  bool since(Timestamp since, const std::string& user, const Use& use) override {
    Query ended{.kind = Query::Kind::kRange, .field = QueryField::kEnded};
    ended.from = since.nanoseconds;
    // The end of an array is that of one of its tasks; others may have ended later.
    Query query = joined(Query::Kind::kOr, ended, field_node(QueryField::kArray, "true"));
    if (user.find('*') != std::string::npos) return true;
    if (!user.empty())
      query = joined(Query::Kind::kAnd, field_node(QueryField::kUser, user), std::move(query));
    return each(std::move(query), use);
  }

 private:
  // Until a store answers; not behind one that failed when it had begun.
  using Counted = std::function<void(std::uint64_t runs)>;
  bool first_that(
      const std::function<Result<Searchable::RunAnswer>(Searchable&, const Counted&)>& ask) {
    std::vector<query::Refusal> refused;
    for (const query::Store& store : stores_) {
      Counter counter(console_, "runs");
      bool any = false;
      const auto answer = ask(*store.searchable, [&](std::uint64_t runs) {
        any = true;
        counter.add(runs);
      });
      if (!answer) {
        refused.push_back({store.name, answer.error()});
        if (any) break;
        continue;
      }
      say_problems(answer->problems);
      if (!answer->finished) console_.err << "scriptorium: stopped; some jobs are missing\n";
      return true;
    }
    if (!is_quiet_) say_refusals(refused, console_);
    return false;
  }

  void say_problems(const std::vector<std::string>& problems) {
    for (const std::string& problem : problems)
      console_.err << "scriptorium: " << printable(problem, 1024) << "\n";
  }

  // Asks the stores until one answers; a later page is asked of the same.
  bool each(Query query, const Use& use) {
    Searchable::Request request{.query = std::move(query), .limit = kJobsOfAPage};
    request.most_lines = 0;
    request.stop = signal_.token();
    std::vector<query::Refusal> refused;
    for (const query::Store& store : stores_) {
      auto read = each_of(store, request, use);
      if (read) return true;
      refused.push_back({store.name, read.error()});
    }
    if (!is_quiet_) say_refusals(refused, console_);
    return false;
  }

  Result<void> each_of(const query::Store& store, Searchable::Request request, const Use& use) {
    Counter counter(console_, "jobs");
    while (true) {
      const auto page = query::usage_page(store, request);
      if (!page) return page.error();
      say_problems(page->problems);
      for (const auto& [event, family] : page->uses) {
        Json json = Json::parse(event_json(*event), nullptr, false);
        if (json.is_object()) use({std::move(json), event->id, family});
      }
      counter.add(request.limit);
      if (request.stop.stop_requested()) {
        console_.err << "scriptorium: stopped; older jobs are missing\n";
        return {};
      }
      if (page->next.empty() || page->next == request.after) return {};
      request.after = page->next;
    }
  }

  const std::shared_ptr<const OpenStores> open_;
  const std::vector<query::Store> stores_;
  const SignalStop signal_;
  Console& console_;
  bool is_quiet_ = false;
};

// What cannot be opened is left out without a word, as the trees may still have the job.
std::shared_ptr<const OpenStores> open_quietly(const Arguments& arguments, Console& console) {
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  if (setup.sinks.empty()) return nullptr;
  std::ostringstream unsaid;
  Console quiet{console.in, console.out, unsaid};
  quiet.owns_process = console.owns_process;
  return std::make_shared<OpenStores>(open_stores(std::move(setup), "", quiet));
}

std::unique_ptr<Stores> indexed_of(const std::shared_ptr<const OpenStores>& open,
                                   Console& console) {
  if (open == nullptr) return nullptr;
  std::vector<query::Store> stores;
  for (const query::Store& store : open->list()) {
    const auto& sinks = open->setup().config.sinks;
    const auto sink = std::find_if(sinks.begin(), sinks.end(), [&](const SinkInstance& instance) {
      return instance.name == store.name;
    });
    if (sink != sinks.end() && takes(*sink, "usage.job") &&
        store.searchable->speed() == Searchable::Speed::kIndexed)
      stores.push_back(store);
  }
  if (stores.empty()) return nullptr;
  return std::make_unique<Stores>(open, std::move(stores), console);
}

// The trees of all plugins with an option `root` that take events of this kind; the catalog's holds
// no such files.
std::vector<std::string> roots_of(const Config& config, std::string_view kind) {
  std::vector<std::string> roots;
  for (const SinkInstance& sink : config.sinks) {
    const Value* root = sink.table.find("root");
    const std::string* path = root == nullptr ? nullptr : std::get_if<std::string>(&root->data);
    if (path != nullptr && takes(sink, kind) && sink.common.plugin != "catalog")
      roots.push_back(*path);
  }
  return roots;
}

}  // namespace

bool is_of_job(const Json& event, const std::string& job) {
  const auto text_at = [](const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
  };
  const auto outer = event.find("job");
  if (outer == event.end() || !outer->is_object()) return false;
  if (text_at(*outer, "id") == job) return true;
  const auto in_array = outer->find("array");
  if (in_array == outer->end() || !in_array->is_object()) return false;
  const std::string array = text_at(*in_array, "job_id");
  return !array.empty() && (array == job || array + "_" + text_at(*in_array, "task_id") == job);
}

UsagePlaces usage_places_or_say(const Arguments& arguments, Console& console, int& code) {
  UsagePlaces places;
  if (!arguments.archive.empty()) {
    const std::vector roots{arguments.archive};
    places.list.push_back(std::make_unique<Trees>(roots, roots, console));
    return places;
  }
  // Only root may look into the homes of those who get mails.
  if (!arguments.mail && !become_daemon_user_or_say(arguments, console, code)) return places;
  places.stores = open_quietly(arguments, console);
  if (places.stores != nullptr && !places.stores->service_problem().empty()) {
    code = fail(console, printable(places.stores->service_problem(), 1024), kExitUnavailable);
    return places;
  }
  auto indexed = indexed_of(places.stores, console);
  // Problems of the configuration are left to other commands: a user who asks about a job may not
  // be allowed to read all of it.
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  auto roots = roots_of(config, "usage.job");
  auto script_roots = roots_of(config, "job.script");
  const bool lacks_scripts = arguments.by == "module" && script_roots.empty();
  if (lacks_scripts) roots.clear();
  if (indexed != nullptr) {
    if (!roots.empty()) indexed->keep_quiet();
    places.list.push_back(std::move(indexed));
  }
  if (!roots.empty())
    places.list.push_back(
        std::make_unique<Trees>(std::move(roots), std::move(script_roots), console));
  if (!places.list.empty()) return places;
  code = kExitConfig;
  if (print_problems(problems, console)) return places;
  if (lacks_scripts) {
    fail(console,
         "--by module: no sink keeps the scripts where a report can read them; add [sink.catalog], "
         "reload, and run `scriptorium sinks fill catalog`, or use --archive DIR",
         code);
    return places;
  }
  console.err << "scriptorium: " << arguments.config_file
              << ": no sink keeps usage.job where a report can read it; give [sink.catalog], or a "
                 "sink with a root, kinds = [\"job.script\", \"usage.*\"], or use --archive DIR\n";
  return places;
}

}  // namespace scriptorium::cli

// How long a catalog takes to answer.
//
//   search_bench ROOT [--make JOBS] [--queries 30] [--only NAME] [--cold] [--tree JOBS]
//
// ROOT is a catalog (catalog_bench --root ROOT makes one), or is made first (--make). Terms
// are drawn from its scripts; each query runs three times and its median counts. --cold drops the
// page cache before each query and opens everything anew (as root). --tree writes so many jobs of
// the same model as a tree of files and asks `rg`, `grep` and `find | jq` the same, cold (as root)
// and warm. --only NAME takes the kinds of queries that have NAME in theirs.

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/search.h"
#include "backends/catalog/segments.h"
#include "backends/catalog/sink.h"
#include "backends/catalog/words.h"
#include "core/base/number.h"
#include "tests/bench/job_model.h"
#include "tests/support/queries.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string root;
  std::size_t make = 0;
  std::size_t queries = 30;
  std::size_t tree_jobs = 0;
  std::string only;  // kinds of queries whose name has this
  bool cold = false;
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Of this thread: on a machine that others use too, the more reliable figure.
double cpu_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

// ---- a catalog

bool make_catalog(const Options& options) {
  test::RecordingLogger log;
  const PluginContext context{"catalog", "lab", log, system_clock()};
  catalog::CatalogConfig config;
  config.root = options.root;
  catalog::CatalogSink sink(config, context);
  if (auto started = sink.start(); !started) {
    std::printf("%s\n", started.error().message().c_str());
    return false;
  }
  bench::JobModel model;
  for (std::size_t done = 0; done < options.make; done += 200) {
    std::vector<std::shared_ptr<const Event>> events;
    for (std::size_t i = 0; i < 200; ++i)
      events.push_back(std::make_shared<const Event>(model.next()));
    test::Outbox outbox;
    sink.deliver(outbox.batch(events));
    for (auto& event : events) event = std::make_shared<const Event>(model.usage_of(*event));
    test::Outbox second;
    sink.deliver(second.batch(events));
  }
  sink.stop(std::chrono::steady_clock::now() + std::chrono::seconds(60));
  return true;
}

// ---- terms

struct Terms {
  std::vector<std::string> scripts;
  std::vector<JobRow> rows;
};

Terms draw_terms(const std::string& root, std::mt19937_64& random) {
  Terms terms;
  auto catalog_db = catalog::open_catalog_reader(root);
  if (!catalog_db) return terms;
  for (const auto& info : catalog::list_segments(**catalog_db)) {
    auto db = catalog::open_segment_reader(root, info.id);
    if (!db) continue;
    const auto blocks = (*db)->integer("SELECT max(id) FROM blocks").value_or(0);
    const auto jobs = (*db)->integer("SELECT max(id) FROM jobs").value_or(0);
    sqlite::Statement select(**db, "SELECT data FROM blocks WHERE id >= ? AND kind = 0 LIMIT 1");
    for (int i = 0; i < 400 && blocks > 0; ++i) {
      if (select.bind(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(blocks)))
              .step()) {
        const auto block = catalog::Block::unpack(select.text(0));
        if (block && block->size() > 0)
          terms.scripts.emplace_back((*block)[random() % block->size()]);
      }
      select.reset();
    }
    catalog::RowReader rows(**db);
    for (int i = 0; i < 200 && jobs > 0; ++i) {
      auto row =
          rows.read(1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(jobs)));
      if (row && *row) terms.rows.push_back(**row);
    }
  }
  return terms;
}

class Maker {
 public:
  Maker(Terms terms, std::uint64_t seed) : terms_(std::move(terms)), random_(seed) {}

  const std::string& script() { return terms_.scripts[random_() % terms_.scripts.size()]; }
  const JobRow& row() { return terms_.rows[random_() % terms_.rows.size()]; }
  std::string word(std::size_t least = 3) {
    for (;;) {
      const auto words = catalog::words_of_text(script());
      if (words.empty()) continue;
      const std::string& word = words[random_() % words.size()];
      if (word.size() >= least) return word;
    }
  }
  // From the text itself, with what is between the words.
  std::string phrase(std::size_t count) {
    for (;;) {
      const std::string& text = script();
      std::vector<std::pair<std::size_t, std::size_t>> words;
      for (std::size_t at = 0; at < text.size();) {
        if (!is_word_byte(text[at])) {
          ++at;
          continue;
        }
        const std::size_t begin = at;
        while (at < text.size() && is_word_byte(text[at])) ++at;
        words.emplace_back(begin, at);
      }
      if (words.size() < count + 1) continue;
      const std::size_t first = random_() % (words.size() - count);
      const std::string found =
          text.substr(words[first].first, words[first + count - 1].second - words[first].first);
      if (found.find('\n') == std::string::npos) return found;
    }
  }

 private:
  Terms terms_;
  std::mt19937_64 random_;
};

Query submitted_from(std::int64_t from) {
  Query query;
  query.kind = Query::Kind::kRange;
  query.field = QueryField::kSubmitted;
  query.from = from;
  return query;
}

struct Kind {
  const char* name;
  std::function<Query(Maker&)> make;
  bool counts = false;
};

std::vector<Kind> kinds() {
  using F = QueryField;
  using test::all_of_query, test::any_of_query, test::expression_query, test::field_query,
      test::not_query, test::text_query;
  return {
      {"everything", [](Maker&) { return Query{}; }},
      {"word", [](Maker& m) { return text_query(m.word()); }},
      {"long word", [](Maker& m) { return text_query(m.word(9)); }},
      {"absent word", [](Maker& m) { return text_query(m.word() + "zq"); }},
      {"two words",
       [](Maker& m) { return all_of_query({text_query(m.word()), text_query(m.word())}); }},
      {"OR of three",
       [](Maker& m) {
         return any_of_query({text_query(m.word()), text_query(m.word()), text_query(m.word())});
       }},
      {"prefix of 4", [](Maker& m) { return test::prefix_query(m.word(5).substr(0, 4)); }},
      {"prefix of 2", [](Maker& m) { return test::prefix_query(m.word(4).substr(0, 2)); }},
      {"phrase of 2", [](Maker& m) { return text_query(m.phrase(2)); }},
      {"phrase of 3", [](Maker& m) { return text_query(m.phrase(3)); }},
      {"absent phrase", [](Maker& m) { return text_query(m.word() + " " + m.word()); }},
      {"frequent NOT",
       [](Maker& m) {
         return all_of_query({text_query(m.word()), not_query(text_query(m.word()))});
       }},
      {"NOT alone", [](Maker& m) { return not_query(text_query(m.word())); }},
      {"NOT bash", [](Maker&) { return not_query(text_query("bash")); }},
      {"word + user",
       [](Maker& m) {
         return all_of_query(
             {text_query(m.word()), field_query(F::kUser, m.row().user.value_or(""))});
       }},
      {"word + account",
       [](Maker& m) {
         return all_of_query(
             {text_query(m.word()), field_query(F::kAccount, m.row().account.value_or(""))});
       }},
      {"word + last month",
       [](Maker& m) {
         return all_of_query({text_query(m.word()), submitted_from(m.row().time.nanoseconds)});
       }},
      {"user", [](Maker& m) { return field_query(F::kUser, m.row().user.value_or("")); }},
      {"account", [](Maker& m) { return field_query(F::kAccount, m.row().account.value_or("")); }},
      {"user + failed",
       [](Maker& m) {
         return all_of_query(
             {field_query(F::kUser, m.row().user.value_or("")), field_query(F::kState, "FAILED")});
       }},
      {"module",
       [](Maker& m) {
         const auto& modules = m.row().modules;
         return field_query(F::kModule, modules.empty() ? "gcc" : modules.front());
       }},
      {"name*",
       [](Maker& m) {
         return field_query(F::kName, m.row().name.value_or("a").substr(0, 3) + "*");
       }},
      {"job id", [](Maker& m) { return field_query(F::kJob, m.row().id); }},
      {"script hash",
       [](Maker& m) {
         return field_query(F::kScript, m.row().script_sha256.value_or("").substr(0, 12));
       }},
      {"env variable",
       [](Maker& m) {
         Query query;
         query.kind = Query::Kind::kVariable;
         query.name = "USER";
         query.text = m.row().user.value_or("");
         return query;
       }},
      {"expression, literal", [](Maker& m) { return expression_query(m.word(6) + "[ =].*[0-9]"); }},
      {"expression, scan", [](Maker&) { return expression_query("[A-Z]{4}_[0-9]+q{3}x"); }},
      {"environment, scan",
       [](Maker&) { return expression_query("[A-Z]{4}_[0-9]+q{3}x", JobPart::kEnvironment); }},
      {"count: user", [](Maker& m) { return field_query(F::kUser, m.row().user.value_or("")); },
       true},
      {"count: all", [](Maker&) { return Query{}; }, true},
      {"count: state", [](Maker&) { return field_query(F::kState, "FAILED"); }, true},
      {"count: word", [](Maker& m) { return text_query(m.word()); }, true},
  };
}

// ---- measuring

void drop_caches() {
  ::sync();
  std::ofstream("/proc/sys/vm/drop_caches") << "3\n";
}

struct Result_ {
  double ms = 0;
  double cpu = 0;
  std::size_t hits = 0;
  std::uint64_t bytes = 0;
  bool finished = true;
  std::string problem;
};

Result_ ask(Searchable& search, const Query& query, bool counts) {
  Searchable::Request request;
  request.query = query;
  request.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::uint64_t bytes = 0;
  request.progress = [&](const Searchable::Progress& progress) { bytes = progress.bytes; };
  if (counts) {
    request.limit = 0;
    request.count = true;
    request.facets = {QueryField::kUser, QueryField::kAccount};
  }
  const double begin = now_ms();
  const double cpu = cpu_ms();
  const auto answer = search.search(request);
  Result_ result;
  result.ms = now_ms() - begin;
  result.cpu = cpu_ms() - cpu;
  result.bytes = bytes;
  if (!answer) {
    result.problem = answer.error().message();
    return result;
  }
  result.hits = counts ? answer->count->jobs : answer->hits.size();
  result.finished = answer->finished;
  if (!answer->problems.empty()) result.problem = answer->problems.front();
  return result;
}

void print_texts(const Query& query) {
  if (query.kind == Query::Kind::kNot) std::printf(" NOT");
  if (!query.text.empty()) std::printf(" %s", query.text.c_str());
  for (const Query& child : query.children) print_texts(child);
}

constexpr double kSlow = 1e3;  // milliseconds of CPU: such a query is printed

void measure(const Options& options, Maker& maker) {
  auto search = catalog::make_search(options.root, system_clock());
  std::printf("%-22s %26s   %26s %8s\n", options.cold ? "newest 50, cold" : "newest 50, warm",
              "CPU ms: p50, p95, max", "wall ms: p50, p95, max", "hits");
  for (const Kind& kind : kinds()) {
    if (std::string_view(kind.name).find(options.only) == std::string_view::npos) continue;
    std::vector<double> times;
    std::vector<double> cpu_times;
    std::size_t hits = 0;
    std::uint64_t bytes = 0;
    double scan_ms = 0;
    std::size_t unfinished = 0;
    std::string problem;
    const bool is_scan = std::string_view(kind.name).find("scan") != std::string_view::npos;
    const std::size_t queries = is_scan ? 2 : options.queries;
    for (std::size_t i = 0; i < queries; ++i) {
      const Query query = kind.make(maker);
      std::vector<double> runs;
      std::vector<double> cpu_runs;
      for (int run = 0; run < (options.cold || is_scan ? 1 : 3); ++run) {
        if (options.cold) {
          drop_caches();
          search = catalog::make_search(options.root, system_clock());
        }
        const Result_ result = ask(*search, query, kind.counts);
        runs.push_back(result.ms);
        cpu_runs.push_back(result.cpu);
        if (!result.problem.empty()) problem = result.problem;
        if (run > 0) continue;
        hits += result.hits;
        bytes = result.bytes;
        scan_ms = result.cpu;
        unfinished += result.finished ? 0 : 1;
      }
      std::sort(runs.begin(), runs.end());
      std::sort(cpu_runs.begin(), cpu_runs.end());
      times.push_back(runs[runs.size() / 2]);
      cpu_times.push_back(cpu_runs[cpu_runs.size() / 2]);
      if (cpu_times.back() > kSlow) {
        std::printf("  slow:");
        print_texts(query);
        std::printf("\n");
      }
    }
    std::sort(times.begin(), times.end());
    std::sort(cpu_times.begin(), cpu_times.end());
    const auto at = [](const std::vector<double>& list, double share) {
      return list[static_cast<std::size_t>(share * static_cast<double>(list.size() - 1) + 0.5)];
    };
    std::printf("%-22s %8.2f %8.2f %8.2f   %8.2f %8.2f %8.2f %8zu", kind.name, at(cpu_times, 0.5),
                at(cpu_times, 0.95), at(cpu_times, 1), at(times, 0.5), at(times, 0.95),
                at(times, 1), hits / queries);
    if (is_scan)
      std::printf(" %.0f MB, %.2f GB/s", static_cast<double>(bytes) / 1e6,
                  static_cast<double>(bytes) / 1e6 / scan_ms);
    if (unfinished > 0) std::printf(" %zu at the deadline", unfinished);
    if (!problem.empty()) std::printf(" problem: %s", problem.c_str());
    std::printf("\n");
    std::fflush(stdout);
  }
}

// ---- peers

struct Times {
  double ms = 0;
  double cpu = 0;
};

double children_cpu_ms() {
  rusage use{};
  ::getrusage(RUSAGE_CHILDREN, &use);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(use.ru_utime) + ms(use.ru_stime);
}

Times time_command(const std::string& command) {
  const double begin = now_ms();
  const double cpu = children_cpu_ms();
  if (std::system(command.c_str()) == -1) std::printf("cannot run %s\n", command.c_str());
  return {now_ms() - begin, children_cpu_ms() - cpu};
}

// Jobs of the model that also made the catalog, as a tree of files.
void make_tree(const std::string& tree, std::size_t jobs) {
  bench::JobModel model;
  for (std::size_t i = 0; i < jobs; ++i) {
    const Event event = model.next();
    const std::string folder = tree + event.user.name.value_or("nobody");
    fs::create_directories(folder);
    if (const EventFile* script = event.file("script"))
      std::ofstream(folder + "/" + event.job.id + ".sh") << *script->bytes;
    std::ofstream(folder + "/" + event.job.id + ".json")
        << event_json(event, {.script_text = false, .environment = false});
  }
}

void compare_peer(const Options& options, const char* name, const std::string& command,
                  const Query& query) {
  for (const bool cold : {true, false}) {
    if (cold) drop_caches();
    const Times peer = time_command(command);
    if (cold) drop_caches();
    const auto search = catalog::make_search(options.root, system_clock());
    const Result_ found = ask(*search, query, false);
    std::printf("%-20s %s %9.0f ms, CPU %9.0f ms | catalog, newest 50: %8.1f ms, CPU %8.1f ms\n",
                name, cold ? "cold" : "warm", peer.ms, peer.cpu, found.ms, found.cpu);
    std::fflush(stdout);
  }
}

void measure_peers(const Options& options, Maker& maker) {
  test::TempDir directory;
  const std::string tree = directory.path_to("");
  make_tree(tree, options.tree_jobs);
  std::printf("a tree of %zu jobs of the same model\n", options.tree_jobs);
  const std::string word = maker.word(6);
  const std::string user = maker.row().user.value_or("x");
  compare_peer(options, "rg -ilw WORD",
               "rg -ilw -g '*.sh' '" + word + "' '" + tree + "' >/dev/null",
               test::text_query(word));
  compare_peer(options, "grep -rilw WORD",
               "grep -rilw --include='*.sh' '" + word + "' '" + tree + "' >/dev/null",
               test::text_query(word));
  compare_peer(options, "find | jq user",
               "find '" + tree +
                   "' -name '*.json' -print0 | xargs -0 jq -r 'select(.user.name == \"" + user +
                   "\") | .job.id' >/dev/null",
               test::field_query(QueryField::kUser, user));
  compare_peer(options, "rg EXPRESSION",
               "rg -l -g '*.sh' '[A-Z]{4}_[0-9]+q{3}x' '" + tree + "' >/dev/null",
               test::expression_query("[A-Z]{4}_[0-9]+q{3}x"));
}

int run(const Options& options) {
  if (options.make > 0 && !make_catalog(options)) return 1;
  std::mt19937_64 random(42);
  Terms terms = draw_terms(options.root, random);
  if (terms.scripts.empty() || terms.rows.empty()) {
    std::printf("%s: no catalog with sealed scripts\n", options.root.c_str());
    return 1;
  }
  Maker maker(std::move(terms), 1);
  measure(options, maker);
  if (options.tree_jobs > 0) measure_peers(options, maker);
  return 0;
}

}  // namespace
}  // namespace scriptorium

int main(int argc, char** argv) {
  scriptorium::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto number = [&] {
      return scriptorium::parse_number<std::size_t>(i + 1 < argc ? argv[++i] : "").value_or(0);
    };
    if (word == "--make") {
      options.make = number();
    } else if (word == "--queries") {
      options.queries = std::max<std::size_t>(number(), 1);
    } else if (word == "--tree") {
      options.tree_jobs = number();
    } else if (word == "--only") {
      options.only = i + 1 < argc ? argv[++i] : "";
    } else if (word == "--cold") {
      options.cold = true;
    } else {
      options.root = word;
    }
  }
  if (options.root.empty()) {
    std::printf(
        "usage: search_bench ROOT [--make JOBS] [--queries N] [--only NAME] [--cold] [--tree "
        "JOBS]\n");
    return 64;
  }
  return scriptorium::run(options);
}

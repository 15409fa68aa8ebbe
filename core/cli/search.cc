#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/job_text.h"
#include "core/cli/open_stores.h"
#include "core/cli/pager.h"
#include "core/cli/search_output.h"
#include "core/cli/search_progress.h"
#include "core/cli/search_request.h"
#include "core/cli/signal_stop.h"
#include "core/query/unknown_end.h"

namespace scriptorium::cli {
namespace {

// Hits that one call asks for; more would wait in memory before the first is printed.
constexpr std::size_t kSearchPage = 500;

bool wants_all(const Arguments& arguments) { return arguments.all || arguments.limit == 0; }

struct Outcome {
  Searchable::Answer last;
  std::optional<query::Store> store;  // that answered
  std::vector<query::Refusal> refused;
  std::uint64_t hits = 0;
  std::optional<Searchable::Count> end_unknown;  // jobs that might belong to them
};

// To count the jobs that might belong to what was found.
constexpr std::chrono::seconds kMostForUnknown{1};

// Somebody at a terminal gets what an index has found within this; a program gets everything.
constexpr double kPatienceSeconds = 2;

SteadyTime deadline_of(const Arguments& arguments, const query::Store& store,
                       const Console& console) {
  const bool waits = console.out_is_terminal && !wants_all(arguments) &&
                     store.searchable->speed() == Searchable::Speed::kIndexed;
  const double seconds = arguments.deadline >= 0 ? arguments.deadline
                         : waits                 ? kPatienceSeconds
                                                 : 0;
  if (seconds <= 0) return SteadyTime::max();
  const auto limit = std::chrono::duration<double>(std::min(seconds, 1e6));
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
}

// Asks page by page until everything that was wanted is printed. The store that answers first
// gives the other pages too, since `next` is its own.
Outcome run(std::vector<query::Store> stores, Searchable::Request request, bool all,
            SearchOutput& output, Pager& pager, SearchProgress& progress) {
  Outcome outcome;
  std::size_t left = request.limit;
  const bool sums = request.count || !request.facets.empty();
  while (true) {
    request.limit = sums ? 0 : all ? kSearchPage : std::min(left, kSearchPage);
    auto asked = query::search_fastest(stores, request);
    outcome.refused.insert(outcome.refused.end(), asked.refused.begin(), asked.refused.end());
    if (asked.store == nullptr) {
      outcome.store.reset();
      return outcome;
    }
    outcome.store = *asked.store;
    stores = {*outcome.store};
    outcome.last = std::move(asked.answer);
    const Searchable::Answer& answer = outcome.last;
    outcome.hits += answer.hits.size();
    left -= std::min(left, answer.hits.size());
    progress.clear();
    const bool read = pager.write(output.page(answer));
    const bool wanted = !sums && (all || left > 0);
    const bool more = !answer.next.empty() && answer.next != request.after && answer.finished;
    if (!read || !wanted || !more) return outcome;
    request.after = answer.next;
  }
}

// Jobs whose end is unknown are no hits of `state:FAILED`, and no others either: they are counted.
// `asked_for`: the search, from which its reader and stop are taken.
std::optional<Searchable::Count> count_end_unknown(const query::Store& store,
                                                   const Searchable::Request& asked_for) {
  auto unknown = query::unknown_end(asked_for.query);
  if (!unknown || store.searchable->speed() == Searchable::Speed::kScan) return std::nullopt;
  Searchable::Request request;
  request.query = *std::move(unknown);
  request.limit = 0;
  request.count = true;
  request.deadline = std::chrono::steady_clock::now() + kMostForUnknown;
  request.stop = asked_for.stop;
  request.visibility = asked_for.visibility;
  const auto asked = query::search_fastest({store}, request);
  if (asked.store == nullptr || !asked.answer.count) return std::nullopt;
  Searchable::Count count = *asked.answer.count;
  count.at_least = count.at_least || !asked.answer.finished;
  return count;
}

// How the same question is asked on.
std::string continuation(const Searchable::Answer& answer) {
  return "--after " + printable(answer.next, 4096);
}

void say_rest(const Arguments& arguments, const Outcome& outcome, Console& console) {
  const Searchable::Answer& last = outcome.last;
  if (!outcome.refused.empty())
    console.err << "scriptorium: sink " << printable(outcome.store->name) << " answered instead\n";
  for (const std::string& problem : last.problems)
    console.err << "scriptorium: left out: " << printable(problem, 1024) << "\n";
  if (outcome.end_unknown && outcome.end_unknown->jobs > 0 && !arguments.json) {
    console.err << (outcome.end_unknown->at_least ? "at least " : "") << outcome.end_unknown->jobs
                << (outcome.end_unknown->jobs == 1 ? " job" : " jobs") << ": end unknown\n";
  }
  if (!last.finished) {
    console.err << "scriptorium: not finished: searched back to "
                << (last.searched_back_to ? local_time(*last.searched_back_to) : "an unknown time")
                << (last.next.empty() ? "" : "; --all or " + continuation(last) + " to continue")
                << "\n";
  } else if (!last.next.empty() && console.out_is_terminal && !arguments.json) {
    console.err << "There are more: --all, a larger --limit, or " << continuation(last) << "\n";
  }
}

bool found_anything(const Outcome& outcome) {
  const Searchable::Answer& last = outcome.last;
  if (outcome.hits > 0 || (last.count && last.count->jobs > 0)) return true;
  return std::any_of(last.facets.begin(), last.facets.end(),
                     [](const Searchable::Facet& facet) { return !facet.values.empty(); });
}

int search(const Arguments& arguments, const OpenStores& stores, Searchable::Request request,
           const std::stop_token& stop, Console& console) {
  const query::Store& first = stores.list().front();
  SearchProgress progress(first.name, first.searchable->speed() == Searchable::Speed::kScan,
                          console);
  request.deadline = deadline_of(arguments, first, console);
  request.stop = stop;
  request.progress = [&](const Searchable::Progress& p) { progress.report(p); };
  const auto output = make_search_output(arguments, stores.cluster(), console);
  Pager pager(console);
  Outcome outcome = run(stores.list(), request, wants_all(arguments), *output, pager, progress);
  const bool for_ids = arguments.ids || arguments.nul || arguments.csv;
  if (outcome.store && !for_ids) outcome.end_unknown = count_end_unknown(*outcome.store, request);
  if (outcome.store) pager.write(output->end(outcome.last, *outcome.store, outcome.end_unknown));
  pager.finish();
  const int code = say_refusals(outcome.refused, console);
  if (!outcome.store) {
    say_closed(stores, console);
    return code;
  }
  say_rest(arguments, outcome, console);
  const bool found = found_anything(outcome);
  // The service would know of jobs that the others do not have.
  if (!found && !outcome.refused.empty() && stores.is_remote(first)) return kExitUnavailable;
  // What was left out may have matched, too.
  if (!outcome.last.finished || !outcome.last.problems.empty()) return kExitTryAgain;
  return found ? kExitGood : kExitNotFound;
}

// The fields of a query that only later events fill; what is excluded may be unknown of every job.
void outcome_fields(const Query& query, std::set<QueryField>& fields) {
  if (query.kind == Query::Kind::kNot) return;
  const bool has_field = query.kind == Query::Kind::kField || query.kind == Query::Kind::kRange;
  if (has_field && is_outcome_field(query.field)) fields.insert(query.field);
  for (const Query& child : query.children) outcome_fields(child, fields);
}

// Whether a job of the store has any value in the field. True if the store cannot say.
bool is_filled(const query::Store& store, QueryField field, const std::stop_token& stop) {
  Searchable::Request request;
  request.query.kind = is_range_field(field) ? Query::Kind::kRange : Query::Kind::kField;
  request.query.field = field;
  request.query.text = "*";
  request.limit = 1;
  request.most_lines = 0;
  request.stop = stop;
  const auto asked = query::search_fastest({store}, request);
  return asked.store == nullptr || !asked.answer.finished || !asked.answer.hits.empty();
}

// "Nothing found" would be wrong where nothing could be found: says so, and how that changes.
bool has_what_is_asked_for(const Query& query, const query::Store& store,
                           const std::stop_token& stop, Console& console) {
  std::set<QueryField> fields;
  outcome_fields(query, fields);
  std::string unknown;
  // Whether a tree has a value says only a look at all of it.
  if (store.searchable->speed() == Searchable::Speed::kScan) return true;
  for (const QueryField field : fields) {
    if (!is_filled(store, field, stop))
      unknown += (unknown.empty() ? "" : ", ") + std::string(query_field_name(field));
  }
  if (unknown.empty()) return true;
  console.err << "scriptorium: sink " << printable(store.name) << " knows of no job: " << unknown
              << ". Usage events fill these fields: configure a source of them (docs/usage.md), "
                 "and kinds = [\"job.*\", \"usage.job\"] in [sink."
              << printable(store.name) << "]\n";
  return false;
}

}  // namespace

int search_command(const Arguments& arguments, Console& console) {
  const SignalStop signal(console.owns_process);
  const Timestamp now = system_clock().now();
  auto parsed = search_request(arguments, now, local_offset);
  if (const auto* problem = std::get_if<SearchProblem>(&parsed)) {
    console.err << problem->text << (problem->text.ends_with('\n') ? "" : "\n");
    return kExitUsage;
  }
  int code = kExitGood;
  const auto stores = open_stores_or_say(arguments, console, code);
  if (!stores) return code;
  // That a user's own jobs have no value says nothing of the store.
  const query::Store& first = stores->list().front();
  if (!stores->is_remote(first) &&
      !has_what_is_asked_for(std::get<Searchable::Request>(parsed).query, first, signal.token(),
                             console))
    return kExitUnavailable;
  return search(arguments, *stores, std::get<Searchable::Request>(std::move(parsed)),
                signal.token(), console);
}

}  // namespace scriptorium::cli

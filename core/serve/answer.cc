#include "core/serve/answer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "core/plugin/call_plugin.h"
#include "core/query/parse.h"
#include "core/query/visible_store.h"

namespace scriptorium::serve {
namespace {

constexpr std::size_t kMostLines = 100;
constexpr std::size_t kMostFacetValues = 10'000;

// Items of one message: enough that few are needed, and few enough that large ones fit.
constexpr std::size_t kHitsOfMessage = 10;
constexpr std::size_t kRunsOfMessage = 500;

const char* name_of(Ask::Call call) {
  switch (call) {
    case Ask::Call::kSearch: return "search";
    case Ask::Call::kGet: return "get";
    case Ask::Call::kFamily: return "family";
    case Ask::Call::kRuns: break;
  }
  return "runs";
}

std::string question_of(const Ask& ask) {
  switch (ask.call) {
    case Ask::Call::kSearch: return query::to_text(ask.search.query);
    case Ask::Call::kGet:
      return ask.selector.cluster ? *ask.selector.cluster + '/' + ask.selector.id : ask.selector.id;
    case Ask::Call::kFamily: return std::to_string(ask.family);
    case Ask::Call::kRuns: break;
  }
  return format_rfc3339(ask.runs.from, TimePrecision::kSeconds) + '/' +
         format_rfc3339(ask.runs.until, TimePrecision::kSeconds);
}

class Answering {
 public:
  Answering(const Ask& ask, Searchable& store, const Visibility& visibility,
            const AnswerContext& context)
      : ask_(ask), store_(store), visibility_(visibility), context_(context) {}

  Result<Reply> run() {
    switch (ask_.call) {
      case Ask::Call::kSearch: return search();
      case Ask::Call::kGet: return get();
      case Ask::Call::kFamily: return family();
      case Ask::Call::kRuns: break;
    }
    return ask_.runs.most_wasteful > 0 ? wasteful_runs() : runs();
  }

 private:
  // The service's own, or the client's.
  SteadyTime deadline() const {
    if (!ask_.seconds) return context_.deadline;
    const std::chrono::duration<double> left(*ask_.seconds > 0 ? std::min(*ask_.seconds, 1e6) : 0);
    return std::min(context_.deadline, std::chrono::steady_clock::now() +
                                           std::chrono::duration_cast<SteadyTime::duration>(left));
  }

  Result<Reply> search() {
    Searchable::Request request = ask_.search;
    if (request.facets.size() > kQueryFieldCount)
      return Error{ErrorKind::kInvalidConfig, "too many facets"};
    request.limit = std::min(request.limit, kMostHits);
    request.most_lines = std::min(request.most_lines, kMostLines);
    request.context_lines = std::min(request.context_lines, kMostLines);
    request.facet_values = std::min(request.facet_values, kMostFacetValues);
    request.stop = context_.stop;
    request.deadline = deadline();
    auto found = store_.search(request);
    if (!found) return found.error();
    auto hits = std::exchange(found->hits, {});
    if (auto kept = record(hits, [](const Searchable::Hit& hit) { return hit.job.event_id; });
        !kept)
      return kept.error();
    if (auto sent = send(std::move(hits), &Reply::hits, kHitsOfMessage); !sent) return sent.error();
    return Reply{.kind = Reply::Kind::kEnd, .answer = *std::move(found)};
  }

  Result<Reply> get() {
    auto found = store_.get(ask_.selector, {}, std::min(ask_.limit, kMostRecords));
    if (!found) return found.error();
    if (auto kept =
            record(*found, [](const Searchable::Record& found) { return found.job.event_id; });
        !kept)
      return kept.error();
    for (Searchable::Record& record : *found) leave_out_what_is_too_large(record);
    if (auto sent = send(*std::move(found), &Reply::records, 1); !sent) return sent.error();
    return Reply{.kind = Reply::Kind::kEnd};
  }

  Result<Reply> family() {
    auto found = store_.family(ask_.family, {}, ask_.before, std::min(ask_.limit, kMostRows));
    if (!found) return found.error();
    if (auto kept = record(*found, [](const JobRow& job) { return job.event_id; }); !kept)
      return kept.error();
    if (auto sent = send(*std::move(found), &Reply::rows, kHitsOfMessage); !sent)
      return sent.error();
    return Reply{.kind = Reply::Kind::kEnd};
  }

  // Few, so that they may have their events.
  Result<Reply> wasteful_runs() {
    Searchable::RunRequest request = ask_.runs;
    request.most_wasteful = std::min(request.most_wasteful, kMostWastefulRuns);
    request.origin = true;
    request.with_event = [](const JobRun& /*run*/) { return true; };
    request.deadline = deadline();
    request.stop = context_.stop;
    std::vector<JobRun> found;
    auto read = store_.runs(request, [&](const JobRun& run) { found.push_back(run); });
    if (!read) return read.error();
    const auto id_of = [](const JobRun& run) { return run.event ? run.event->id : ""; };
    if (auto kept = record(found, id_of); !kept) return kept.error();
    if (auto sent = send(std::move(found), &Reply::runs, 1); !sent) return sent.error();
    return Reply{.kind = Reply::Kind::kEnd,
                 .answer = {.finished = read->finished},
                 .problems = std::move(read->problems)};
  }

  // The runs may be too many to wait for the last one, so they are recorded without their number.
  Result<Reply> runs() {
    if (auto kept = context_.record(fields()); !kept) return not_recorded(kept.error());
    Searchable::RunRequest request = ask_.runs;
    request.deadline = deadline();
    std::stop_source stop;
    const std::stop_callback on_stop(context_.stop, [&] { stop.request_stop(); });
    request.stop = stop.get_token();
    Reply batch{.kind = Reply::Kind::kItems};
    Result<void> sent;
    const auto flush = [&] {
      sent = context_.send(batch);
      if (!sent) stop.request_stop();
      batch.runs.clear();
    };
    auto read = store_.runs(request, [&](const JobRun& run) {
      if (!sent) return;
      batch.runs.push_back(run);
      if (batch.runs.size() >= kRunsOfMessage) flush();
    });
    if (!read) return read.error();
    if (sent) flush();
    if (!sent) return sent.error();
    if (context_.stop.stop_requested() ||
        (!read->finished && request.deadline == context_.deadline))
      return Error{ErrorKind::kTransient, "this takes longer than the query service allows"};
    return Reply{.kind = Reply::Kind::kEnd,
                 .answer = {.finished = read->finished},
                 .problems = std::move(read->problems)};
  }

  static void leave_out_what_is_too_large(Searchable::Record& record) {
    constexpr std::size_t kMost = kMostMessageBytes / 2;
    if (record.event == nullptr || record.event->bytes_size() <= kMost) return;
    Event smaller = *record.event;
    for (EventFile& file : smaller.files) file.bytes.reset();
    record.event = std::make_shared<const Event>(std::move(smaller));
    record.problems.emplace_back("its files are too large for the query service");
  }

  Logger::Fields fields() const {
    Logger::Fields all = caller_fields(context_.caller, visibility_);
    all.emplace_back("store", ask_.store);
    all.emplace_back("call", name_of(ask_.call));
    all.emplace_back("asked", question_of(ask_));
    return all;
  }

  template <typename Item, typename IdOf>
  Result<void> record(const std::vector<Item>& items, IdOf id_of) const {
    std::vector<std::string> ids;
    for (const Item& item : items) ids.push_back(id_of(item));
    Logger::Fields all = fields();
    add_found(all, ids);
    if (auto kept = context_.record(all); !kept) return not_recorded(kept.error());
    return {};
  }
  static Error not_recorded(const Error& error) {
    return error.with_context("the query service cannot log what it is asked");
  }

  template <typename Item>
  Result<void> send(std::vector<Item> items, std::vector<Item> Reply::* member,
                    std::size_t of_message) const {
    for (auto next = items.begin(); next != items.end();) {
      const auto end = next + std::min<std::ptrdiff_t>(items.end() - next,
                                                       static_cast<std::ptrdiff_t>(of_message));
      Reply part{.kind = Reply::Kind::kItems};
      (part.*member).assign(std::make_move_iterator(next), std::make_move_iterator(end));
      if (auto sent = context_.send(part); !sent) return sent;
      next = end;
    }
    return {};
  }

  const Ask& ask_;
  Searchable& store_;
  const Visibility& visibility_;
  const AnswerContext& context_;
};

}  // namespace

Reply answer(const Ask& ask, const AnswerContext& context) {
  const auto store =
      std::find_if(context.stores.begin(), context.stores.end(),
                   [&](const query::Store& candidate) { return candidate.name == ask.store; });
  if (store == context.stores.end()) {
    return refusal(
        {ErrorKind::kInvalidConfig, "the query service has no indexed sink \"" + ask.store + "\""});
  }
  auto reply = call_plugin("its plugin", ErrorKind::kPermanent, [&] {
    const Visibility visibility = visibility_of(context.caller, *store->searchable);
    query::VisibleStore visible(*store->searchable, visibility);
    return Answering(ask, visible, visibility, context).run();
  });
  return reply ? *std::move(reply) : refusal(reply.error());
}

}  // namespace scriptorium::serve

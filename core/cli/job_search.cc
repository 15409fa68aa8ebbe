#include "core/cli/job_search.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "core/base/number.h"
#include "core/base/text.h"
#include "core/daemon/control.h"
#include "core/daemon/status_answer.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium::cli {
namespace {

using status_answer::member;

constexpr std::size_t kMostCaptures = 100;

// The event of a sink with the option `parts` lacks what another sink's may have.
void complete_event(Json& event, Json other) {
  const auto is_partial = [](const Json& json) { return json.contains("parts"); };
  if (event.is_null() || (is_partial(event) && !is_partial(other))) return event.swap(other);
  if (!is_partial(event)) return;
  for (const char* name : {"environment", "environment_size", "environment_format"}) {
    if (other.contains(name)) event[name] = other[name];
  }
  const Json& script = member(other, "script");
  if (member(script, "sha256").is_string()) event["script"] = script;
  for (const char* name : {"parts", "files"}) {
    for (const Json& item : member(other, name)) event[name].push_back(item);
  }
}

// A store's record as a place where the job is.
StoredJob stored_job(const std::string& store, const Searchable::Record& record) {
  StoredJob job{record.event->id, "its store", {}};
  for (const EventFile& file : record.event->files)
    job.files.push_back({file.name, store, file.bytes});
  for (StoredFile& file : job.files) file.location = job.location;
  return job;
}

}  // namespace

JobSearch::JobSearch(OpenStores& stores, JobName name, std::set<std::string>& said,
                     Console& console)
    : stores_(stores),
      wanted_(std::move(name)),
      job_(wanted_.id),
      said_(said),
      console_(console),
      failed_(stores.incomplete()) {}

std::vector<StoredCapture> JobSearch::run() {
  search(wanted_.id);
  auto found = result();
  if (std::any_of(found.begin(), found.end(), is_script)) return found;
  for (const std::string& id : other_ids()) {
    search(id);
    auto others = result();
    std::erase_if(others, [&](const StoredCapture& f) { return !is_script(f) || !belongs(f); });
    if (!others.empty()) return others;
  }
  return found;
}

const Searchable::Record* JobSearch::record_of(const StoredCapture& capture) {
  const std::string job = string_of(member(member(capture.event, "job"), "id")).value_or(job_);
  if (asked_.insert(job).second) {
    auto asked = query::get_fastest(stores_.list(), {.id = job, .cluster = wanted_.cluster}, {},
                                    kMostCaptures);
    for (Searchable::Record& record : asked.answer) {
      const std::string id = record.event != nullptr ? record.event->id : record.job.event_id;
      records_.emplace(id, std::move(record));
    }
  }
  const auto found = records_.find(string_of(member(capture.event, "id")).value_or(""));
  return found == records_.end() ? nullptr : &found->second;
}

std::size_t JobSearch::count_components(const std::string& leader) {
  const auto number = parse_number<std::uint64_t>(leader);
  if (!number) return 0;
  constexpr std::size_t kMost = 32;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  std::size_t count = 0;
  for (; count < kMost && std::chrono::steady_clock::now() < deadline; ++count) {
    search(std::to_string(*number + count));
    const auto all = result();
    if (std::none_of(all.begin(), all.end(), [&](const StoredCapture& f) {
          return string_of(member(member(member(f.event, "job"), "het"), "job_id")) == leader;
        }))
      break;
  }
  return count;
}

void JobSearch::search(const std::string& job) {
  by_id_.clear();
  job_ = job;
  ask_journal();
  if (ask_index()) return;
  for (const OpenStores::NamedSink& sink : stores_.sinks()) {
    progress("looking in sink " + sink.name + " ...");
    ask_sink(sink);
  }
  progress("");
}

std::vector<StoredCapture> JobSearch::result() {
  std::vector<StoredCapture> result;
  for (auto& [id, found] : by_id_) {
    const auto cluster = string_of(member(found.event, "cluster"));
    if (!wanted_.cluster || !cluster || cluster == wanted_.cluster)
      result.push_back(std::move(found));
  }
  by_id_.clear();
  std::sort(result.begin(), result.end(),
            [](const StoredCapture& a, const StoredCapture& b) { return time_of(a) > time_of(b); });
  return result;
}

// If the caller's id was "10+1", the entry under 11 must be that component, not a later job with
// that number.
bool JobSearch::belongs(const StoredCapture& capture) const {
  const auto plus = wanted_.id.find('+');
  if (plus == std::string::npos) return true;
  const Json& het = member(member(capture.event, "job"), "het");
  return string_of(member(het, "job_id")).value_or(wanted_.id.substr(0, plus)) ==
         wanted_.id.substr(0, plus);
}

std::vector<std::string> JobSearch::other_ids() {
  std::vector<std::string> ids;
  for (const LoadedSource& source : stores_.setup().sources) {
    if (source.plugin.descriptor->kind != PluginKind::kSpoolAdapter) continue;
    const PluginContext context{.name = source.instance.name,
                                .cluster = stores_.setup().config.core.cluster,
                                .log = stores_.log(),
                                .clock = system_clock()};
    auto adapter = create_spool_adapter(source.plugin, source.instance.table, context);
    if (!adapter) continue;  // `check` reports this
    std::vector<std::string> kept;
    if (const auto thrown = call_plugin([&] {
          kept = (*adapter)->kept_under(
              wanted_.id, {}, std::chrono::steady_clock::now() + std::chrono::seconds{10});
        }))
      say("source " + source.instance.name + ": its plugin throws: " + *thrown);
    for (std::string& id : kept) {
      if (id != wanted_.id && std::find(ids.begin(), ids.end(), id) == ids.end())
        ids.push_back(std::move(id));
    }
  }
  return ids;
}

void JobSearch::ask_journal() {
  if (stores_.asks_service()) return;
  const Json request{{"command", "find"}, {"job", job_}};
  const auto answer =
      control(stores_.setup().config.core.state_dir,
              request.dump(-1, ' ', false, Json::error_handler_t::replace), stores_.log());
  if (!answer) return say("the journal could not be asked: " + answer.error().message());
  const Json events = Json::parse(*answer, nullptr, false);
  if (!events.is_array()) return say("the journal's answer is not understood");
  for (const Json& event : events) {
    StoredCapture& found = by_id_[string_of(member(event, "id")).value_or("")];
    found.event = event;
    found.places.push_back({});
  }
}

// True if an indexed store has a script of the job. What it says of the job is kept for
// record_of().
bool JobSearch::ask_index() {
  bool has_script = false;
  for (const query::Store& store : stores_.list()) {
    if (store.searchable->speed() != Searchable::Speed::kIndexed) continue;
    auto asked =
        query::get_fastest({store}, {.id = job_, .cluster = wanted_.cluster}, {}, kMostCaptures);
    for (const query::Refusal& refusal : asked.refused)
      say("sink " + printable(refusal.store) + ": " + printable(refusal.error.message(), 1024));
    for (Searchable::Record& record : asked.answer) {
      // Of "10+1" the store may give the leader, but the component has an entry of its own.
      const bool other = job_.find('+') != std::string::npos && record.job.id != job_;
      if (record.event == nullptr || other) continue;
      has_script = true;
      StoredCapture& found = by_id_[record.event->id];
      if (found.event.is_null())
        found.event =
            Json::parse(event_json(*record.event, {.script_text = false, .environment = false}),
                        nullptr, false);
      found.places.push_back({store.name, stored_job(store.name, record)});
      records_.insert_or_assign(record.event->id, std::move(record));
    }
    if (has_script) asked_.insert(job_);
    if (has_script) break;
  }
  return has_script;
}

void JobSearch::ask_sink(const OpenStores::NamedSink& sink) {
  auto stored =
      call_plugin("its plugin", ErrorKind::kPermanent, [&] { return sink.sink->find(job_); });
  if (!stored) return say("sink " + sink.name + ": " + stored.error().message());
  for (StoredJob& job : *stored) add(sink.name, std::move(job));
}

void JobSearch::add(const std::string& sink, StoredJob job) {
  Json event;
  for (const StoredFile& file : job.files) {
    if (file.name == "metadata" && file.bytes != nullptr)
      event = Json::parse(*file.bytes, nullptr, false);
  }
  if (!event.is_object()) event = nullptr;
  std::string key =
      job.event_id.empty() ? string_of(member(event, "id")).value_or("") : job.event_id;
  if (key.empty()) key = sink + ":" + job.location;
  StoredCapture& found = by_id_[key];
  if (!event.is_null()) complete_event(found.event, std::move(event));
  found.places.push_back({sink, std::move(job)});
}

void JobSearch::say(const std::string& text) {
  failed_ = true;
  if (!said_.insert(text).second) return;
  progress("");
  console_.err << "scriptorium: " << text << "\n";
}

void JobSearch::progress(const std::string& text) {
  if (console_.out_is_terminal) console_.err << "\r\033[K" << text << std::flush;
}

}  // namespace scriptorium::cli

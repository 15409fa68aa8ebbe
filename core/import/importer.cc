#include "core/import/importer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "core/base/guarded.h"
#include "core/base/pause.h"
#include "core/base/text.h"
#include "core/daemon/pipeline.h"
#include "core/daemon/state_dir.h"
#include "core/import/tree_reader.h"

namespace scriptorium::import {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
// Identifies the import's marks in the journal. Events imported again leave no mark.
constexpr const char* kSource = "import";

// Counts durable events. Called by the journal's thread.
struct Counts {
  std::atomic<std::uint64_t> fresh = 0;
  std::atomic<std::uint64_t> already = 0;
};

class Import {
 public:
  Import(const ImportOptions& options, const Setup& setup, SpoolAccess& tree,
         const SpoolAdapter* adapter, const ImportListener& listener, Logger& log)
      : options_(options),
        setup_(setup),
        tree_(tree),
        adapter_(adapter),
        listener_(listener),
        log_(log) {}

  Result<ImportSummary> run(const std::stop_token& stop);

 private:
  Result<void> open();
  Result<void> start_sinks();
  Result<void> read_tree(const std::stop_token& stop);
  bool take(FoundJob job, const std::stop_token& stop);
  Result<ReadJob> event_of(FoundJob& job) const;
  void watch(const std::stop_token& stop, std::stop_source& give_up);
  std::uint64_t settled() const;
  bool idle() const;
  void deliver(const std::stop_token& stop);
  bool finish();

  const ImportOptions& options_;
  const Setup& setup_;
  SpoolAccess& tree_;
  const SpoolAdapter* const adapter_;
  const ImportListener& listener_;
  Logger& log_;
  const Clock& clock_ = system_clock();

  ImportSummary summary_;
  std::atomic<std::uint64_t> read_ = 0;
  std::atomic<bool> stalled_ = false;
  // The journal's thread calls these until the journal is destroyed, so they are declared before
  // it.
  Counts counts_;
  UniqueFd lock_;
  std::unique_ptr<Journal> journal_;
  std::optional<Runtime> runtime_;
  std::vector<std::unique_ptr<SinkRun>> sinks_;
};

Result<void> Import::open() {
  const CoreConfig& core = setup_.config.core;
  summary_.journal = import_directory(core.state_dir, options_.sink);
  auto lock = lock_state_dir(summary_.journal);
  if (!lock) {
    return lock.error().kind() == ErrorKind::kExhausted
               ? Error{ErrorKind::kExhausted,
                       "another import runs (" + lock.error().message() + ")"}
               : lock.error();
  }
  lock_ = *std::move(lock);
  auto journal = Journal::open({.directory = summary_.journal,
                                .max_bytes = static_cast<std::uint64_t>(core.journal_max_bytes)},
                               log_, clock_);
  if (!journal) return journal.error();
  journal_ = *std::move(journal);
  runtime_.emplace(Runtime{*journal_, log_, clock_, options_.origin.cluster, options_.origin.host,
                           true, nullptr});
  return {};
}

Result<void> Import::start_sinks() {
  const SteadyTime start_limit =
      clock_.steady() + std::chrono::seconds(setup_.config.core.shutdown_seconds);
  for (const LoadedSink& loaded : setup_.sinks) {
    if (!options_.sink.empty() && loaded.instance.name != options_.sink) continue;
    auto sink = SinkRun::make(loaded, *runtime_);
    if (!sink) return sink.error();
    if (auto registered = (*sink)->register_with_journal(); !registered) return registered;
    (*sink)->start();
    sinks_.push_back(*std::move(sink));
    if (auto ready = sinks_.back()->await_start(start_limit); !ready) return ready;
  }
  const auto unconfigured = journal_->unregistered_sinks();
  if (unconfigured.empty()) return {};
  return Error{
      ErrorKind::kInvalidConfig,
      "an earlier import delivered to [sink." + unconfigured.front() +
          "], which is not configured any more, and would keep every event for it; configure it "
          "again, or remove " +
          summary_.journal + ", which forgets what was imported so far"};
}

Result<ReadJob> Import::event_of(FoundJob& job) const {
  const Timestamp now = clock_.now();
  if (auto* own = std::get_if<TreeJob>(&job.job))
    return make_event(options_.format, std::move(*own), options_.origin, *options_.redactor, now);
  auto& spool = std::get<AdapterJob>(job.job);
  return make_event(*adapter_, std::move(spool.entry), spool.period, options_.origin,
                    *options_.redactor, now);
}

bool Import::take(FoundJob job, const std::stop_token& stop) {
  ++summary_.found;
  ++read_;
  auto made = event_of(job);
  if (!made) {
    const bool no_script = made.error().kind() == ErrorKind::kVanished;
    const std::string kind = no_script ? "no script" : "not understood";
    ++summary_.skipped[kind];
    listener_.skipped(job.path, kind, made.error().message());
    return !stop.stop_requested();
  }
  if (options_.before && made->event.time >= *options_.before) {
    ++summary_.later;
    return !stop.stop_requested();
  }
  if (options_.owners != nullptr && options_.owners->verify(made->event)) ++summary_.verified;
  auto event = std::make_shared<const Event>(std::move(made->event));
  summary_.bytes += event->bytes_size();
  if (!event->problems.empty()) ++summary_.doubtful;
  summary_.first = std::min(summary_.first.value_or(event->time), event->time);
  summary_.last = std::max(summary_.last.value_or(event->time), event->time);
  if (options_.dry_run) {
    ++counts_.fresh;
    return !stop.stop_requested();
  }
  Journal::Append item;
  item.source = options_.again ? std::string(kSource) + ".again" : kSource;
  item.event = event;
  item.capture_key = journal_->capture_key(made->original_id);
  if (!options_.again) {
    item.mark = CaptureMark{.entry = options_.tree + "/" + job.path,
                            .identity = identity_of("script", job.stat),
                            .size = job.stat.size,
                            .event_id = event->id};
  }
  item.durable = [this](bool fresh) { ++(fresh ? counts_.fresh : counts_.already); };
  return journal_->append(std::move(item), stop);
}

Result<void> Import::read_tree(const std::stop_token& stop) {
  TreeReader reader({.format = options_.format, .max_file_bytes = options_.max_file_bytes}, tree_,
                    adapter_);
  auto walked =
      reader.walk({.job = [&](FoundJob job) { return take(std::move(job), stop); },
                   .skip =
                       [&](const std::string& path, std::string_view kind, const std::string& why) {
                         if (!kind.starts_with("environment ")) ++summary_.found;
                         ++summary_.skipped[std::string(kind)];
                         listener_.skipped(path, kind, why);
                       },
                   .foreign =
                       [&](const std::string& path) {
                         ++summary_.foreign;
                         listener_.foreign(path);
                       }});
  if (!walked) return walked.error().with_context(options_.tree);
  return {};
}

std::uint64_t Import::settled() const {
  std::uint64_t count = 0;
  for (const auto& sink : sinks_) {
    const auto status = sink->dispatcher().status();
    count += status.acknowledged + status.rejected;
  }
  return count;
}

bool Import::idle() const {
  return std::all_of(sinks_.begin(), sinks_.end(),
                     [](const auto& sink) { return sink->dispatcher().idle(); });
}

// Runs while the tree is read: shows the progress, and gives up if the journal remains full,
// because then no sink takes events.
void Import::watch(const std::stop_token& stop, std::stop_source& give_up) {
  const auto patience = std::chrono::seconds(setup_.config.core.shutdown_seconds);
  std::uint64_t last = settled();
  SteadyTime last_progress = clock_.steady();
  while (!stop.stop_requested()) {
    pause_until(stop, clock_.steady() + kTick);
    const std::uint64_t now = settled();
    if (listener_.progress) listener_.progress(read_, now);
    if (now != last || !journal_->full()) {
      last = now;
      last_progress = clock_.steady();
    } else if (clock_.steady() - last_progress >= patience) {
      stalled_ = true;
      give_up.request_stop();
      return;
    }
  }
}

// Waits until every sink has settled everything, or no sink has taken anything for
// shutdown_seconds.
void Import::deliver(const std::stop_token& stop) {
  const auto patience = std::chrono::seconds(setup_.config.core.shutdown_seconds);
  std::uint64_t last = settled();
  SteadyTime last_progress = clock_.steady();
  while (!stop.stop_requested() && !idle()) {
    const std::uint64_t now = settled();
    if (listener_.progress) listener_.progress(read_, now);
    if (now != last) {
      last = now;
      last_progress = clock_.steady();
    } else if (clock_.steady() - last_progress >= patience) {
      break;
    }
    pause_until(stop, clock_.steady() + milliseconds{20});
  }
  if (listener_.progress) listener_.progress(read_, settled());
}

// Stops the sinks and records each one's result; false if one hangs.
bool Import::finish() {
  const SteadyTime deadline =
      clock_.steady() + std::chrono::seconds(setup_.config.core.shutdown_seconds);
  for (const auto& sink : sinks_) {
    auto& result = summary_.sinks[sink->name()];
    result.acknowledged = sink->dispatcher().status().acknowledged;
    result.last_error = sink->dispatcher().status().last_error.value_or("");
  }
  bool hangs = false;
  for (const auto& sink : sinks_) hangs = !sink->stop(deadline) || hangs;
  journal_->flush(clock_.steady() + std::chrono::seconds{10});
  for (const Journal::SinkState& state : journal_->usage().sinks) {
    auto& result = summary_.sinks[state.name];
    result.waiting = state.waiting;
    result.dead = state.dead;
  }
  return !hangs;
}

Result<ImportSummary> Import::run(const std::stop_token& stop) {
  if (options_.dry_run) {
    if (auto read = read_tree(stop); !read) return read.error();
    summary_.imported = counts_.fresh;
    summary_.interrupted = stop.stop_requested();
    return std::move(summary_);
  }
  if (auto opened = open(); !opened) return opened.error();
  if (auto started = start_sinks(); !started) {
    finish();
    return started.error();
  }
  std::stop_source give_up;
  const std::stop_callback forward(stop, [&] { give_up.request_stop(); });
  Result<void> read;
  {
    const std::jthread watcher([&](const std::stop_token& end) { watch(end, give_up); });
    read = read_tree(give_up.get_token());
  }
  journal_->flush(clock_.steady() + std::chrono::minutes{5});
  if (read && !stalled_) deliver(stop);
  summary_.stalled = stalled_;
  summary_.interrupted = stop.stop_requested();
  summary_.hangs = !finish();
  summary_.imported = counts_.fresh;
  summary_.already = counts_.already;
  if (!read) return read.error();
  return std::move(summary_);
}

}  // namespace

std::string import_directory(const std::string& state_dir, const std::string& sink) {
  return state_dir + "/import" + (sink.empty() ? "" : "-" + sink);
}

Result<ImportSummary> run_import(const ImportOptions& options, const Setup& setup,
                                 SpoolAccess& tree, const SpoolAdapter* adapter,
                                 const ImportListener& listener, Logger& log,
                                 const std::stop_token& stop) {
  if (!options.sink.empty() &&
      std::none_of(setup.sinks.begin(), setup.sinks.end(),
                   [&](const LoadedSink& s) { return s.instance.name == options.sink; })) {
    std::string names;
    for (const LoadedSink& sink : setup.sinks)
      names += (names.empty() ? "" : ", ") + sink.instance.name;
    return Error{ErrorKind::kInvalidConfig, "there is no [sink." + printable(options.sink) +
                                                "] in the configuration; there are: " + names};
  }
  auto import = std::make_unique<Import>(options, setup, tree, adapter, listener, log);
  auto result = import->run(stop);
  // A hung sink's thread still uses all of these.
  if (result && result->hangs) [[maybe_unused]]
    const Import* const kept = import.release();
  return result;
}

}  // namespace scriptorium::import

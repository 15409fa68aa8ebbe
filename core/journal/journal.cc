// Journal: opening and closing, sinks, archives.
#include "core/journal/journal.h"

#include <utility>

#include "core/journal/event_row.h"
#include "core/journal/journal_impl.h"
#include "core/journal/open_database.h"
#include "core/journal/schema.h"

namespace scriptorium {
namespace {

using journal::CommitQueue;
using journal::Shared;
using journal::Writer;

constexpr std::chrono::seconds kReleasePatience{10};

}  // namespace

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::~Journal() = default;

Result<std::unique_ptr<Journal>> Journal::open(const Options& options, Logger& log,
                                               const Clock& clock) {
  auto opened = journal::open_database(options, log, clock);
  if (!opened) return opened.error();
  auto impl = std::make_unique<Impl>(options, log, clock, *std::move(opened));
  if (auto result = impl->start(); !result) return result.error();
  return std::unique_ptr<Journal>(new Journal(std::move(impl)));
}

const Journal::OpenReport& Journal::open_report() const noexcept { return impl_->report; }

Result<void> Journal::verify() const {
  auto connection = journal::Connection::open(impl_->options.directory + "/" + journal::kFileName,
                                              journal::Connection::Mode::kReadOnly);
  if (!connection) return connection.error();
  const std::string damage = journal::verify(**connection, journal::Extent::kWhole);
  if (!damage.empty()) return Error{ErrorKind::kCorrupt, "journal: " + damage};
  return {};
}

std::string Journal::capture_key(std::string_view original_id) const {
  return impl_->secret ? impl_->secret->key_of(original_id) : "";
}

bool Journal::full() const {
  return impl_->queue.with([](const CommitQueue& q) { return q.is_full(); });
}

bool Journal::damaged() const { return impl_->damaged; }

bool Journal::flush(SteadyTime deadline) {
  if (impl_->options.read_only) return true;
  const std::uint64_t upto = impl_->queue.with_notify([](CommitQueue& q) {
    q.begin_flush();
    return q.added();
  });
  impl_->queue.wait_until(
      std::stop_token{}, impl_->real_deadline(deadline),
      [&](const CommitQueue& q) { return q.is_flushed(upto) || q.is_broken(); });
  return impl_->queue.with([&](CommitQueue& q) {
    q.end_flush();
    return q.is_flushed(upto);
  });
}

// Sinks

Result<Journal::SinkId> Journal::register_sink(const std::string& name,
                                               std::vector<std::string> kinds) {
  auto id = impl_->call_until_done([name, kinds = std::move(kinds)](Writer& writer) {
    return writer.register_sink(name, kinds);
  });
  if (!id) return id.error();
  return static_cast<SinkId>(*id);
}

Result<void> Journal::retire_other_sinks(std::vector<std::string> configured) {
  auto result = impl_->call_until_done([configured = std::move(configured)](Writer& writer) {
    return writer.retire_other_sinks(configured);
  });
  if (!result) return result.error();
  return {};
}

std::vector<std::string> Journal::unregistered_sinks() const {
  std::vector<std::string> names;
  impl_->shared.with([&](const Shared& s) {
    for (const auto& [id, row] : s.sinks) {
      if (!row->registered) names.push_back(row->name);
    }
  });
  return names;
}

Result<void> Journal::remove_sink(const std::string& name) {
  return impl_->change([name](Writer& writer) { return writer.remove_sink(name); });
}

Result<std::vector<Journal::Item>> Journal::read(SinkId sink, std::uint64_t after,
                                                 std::size_t max_events,
                                                 std::uint64_t max_bytes) const {
  const bool backlogged = impl_->queue.with([](const CommitQueue& q) { return q.is_backlogged(); });
  if (max_events == 0 || backlogged) return std::vector<Item>{};
  return impl_->reader.read(sink, after, max_events, max_bytes);
}

Result<std::vector<Journal::Item>> Journal::parked(
    SinkId sink, std::size_t limit, std::uint64_t after, std::uint64_t max_bytes,
    const std::function<bool(std::uint64_t)>& skip) const {
  return impl_->reader.parked(sink, limit, after, max_bytes, skip);
}

std::uint64_t Journal::parked_generation(SinkId sink) const {
  return impl_->shared.with([&](const Shared& s) {
    const auto* const row = s.sink(sink);
    return row == nullptr ? 0 : row->generation;
  });
}

std::uint64_t Journal::cursor(SinkId sink) const {
  return impl_->shared.with([&](const Shared& s) {
    const auto* const row = s.sink(sink);
    return row == nullptr ? 0 : row->cursor;
  });
}

bool Journal::wait(SinkId sink, std::uint64_t after, std::uint64_t parked_generation,
                   const std::stop_token& stop, SteadyTime deadline) const {
  const SteadyTime until = impl_->real_deadline(deadline);
  const auto is_backlogged = [](const CommitQueue& q) { return q.is_backlogged(); };
  const bool ready = impl_->shared.wait_until(stop, until, [&](const Shared& s) {
    const auto* const row = s.sink(sink);
    return row != nullptr &&
           (row->generation != parked_generation || s.may_have_event(*row, after));
  });
  if (!ready || !impl_->queue.with(is_backlogged)) return ready;
  return impl_->queue.wait_until(stop, until,
                                 [&](const CommitQueue& q) { return !is_backlogged(q); });
}

void Journal::settle(SinkId sink, std::vector<Settle> settlements, std::uint64_t cursor) {
  impl_->put({.what = journal::SettleMany{sink, std::move(settlements), cursor}, .urgent = false});
}

Result<std::uint64_t> Journal::retry_dead(const std::optional<std::string>& sink,
                                          const std::string& event_id) {
  return impl_->call(
      [sink, event_id](Writer& writer) { return writer.change_dead(sink, event_id, true); });
}

Result<std::uint64_t> Journal::discard_dead(const std::optional<std::string>& sink,
                                            const std::string& event_id) {
  return impl_->call(
      [sink, event_id](Writer& writer) { return writer.change_dead(sink, event_id, false); });
}

// Archives

void Journal::set_archive(Archive archive) { impl_->reader.set_archive(std::move(archive)); }

Result<std::vector<Journal::Releasable>> Journal::releasable(const std::string& archive,
                                                             std::uint64_t& after,
                                                             std::size_t limit) const {
  return impl_->reader.releasable(archive, after, limit);
}

Result<void> Journal::release(const std::vector<Releasable>& events) {
  if (impl_->options.read_only) return impl_->read_only_error();
  journal::ReleaseMany many;
  for (const Releasable& item : events)
    many.items.push_back({item.sequence, journal::encode_locator(*item.event)});
  if (many.items.empty()) return {};
  impl_->put({.what = std::move(many)});
  const std::uint64_t upto = impl_->queue.with([](const CommitQueue& q) { return q.added(); });
  if (!impl_->queue.wait_until(std::stop_token{},
                               std::chrono::steady_clock::now() + kReleasePatience,
                               [&](const CommitQueue& q) { return q.done() >= upto; })) {
    return Error{ErrorKind::kTransient, "journal: not written yet"};
  }
  return {};
}

std::uint64_t Journal::used_bytes() const {
  return impl_->shared.with([](const Shared& s) { return s.used_bytes; });
}

bool Journal::wait_for_release(std::uint64_t bytes, const std::stop_token& stop) {
  return impl_->shared.wait(stop, [&](Shared& s) {
    return s.used_bytes > bytes || std::exchange(s.share_refused, false);
  });
}

std::vector<Journal::OverShare> Journal::over_share() const {
  return impl_->with_held([&](const journal::Shares& all, const journal::Shares::Held& held) {
    return all.waiting(held, impl_->clock.steady());
  });
}

std::uint64_t Journal::user_share_bytes() const {
  return std::min(impl_->options.max_bytes,
                  impl_->shares.with([](const journal::Shares& all) { return all.share_bytes(); }));
}

Result<void> Journal::set_fill(const Fill& fill) {
  return impl_->change([fill](Writer& writer) { return writer.set_fill(fill); });
}

Result<void> Journal::fill(const Fill& before, const Fill& progress,
                           std::vector<std::shared_ptr<const Event>> locators,
                           std::vector<std::shared_ptr<const Event>> whole) {
  return impl_->change(
      [before, progress, locators = std::move(locators), whole = std::move(whole)](Writer& writer) {
        return writer.fill(before, progress, locators, whole);
      });
}

}  // namespace scriptorium

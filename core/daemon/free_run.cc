#include "core/daemon/free_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/pause.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

constexpr std::chrono::milliseconds kFirstRestartPause{500};
constexpr std::chrono::milliseconds kLongestRestartPause{60'000};

}  // namespace

FreeRun::FreeRun(std::string name, std::unique_ptr<FreeSource> source,
                 std::shared_ptr<const redact::Redactor> redactor, const Runtime& runtime)
    : name_(std::move(name)),
      source_(std::move(source)),
      redactor_(std::move(redactor)),
      runtime_(runtime) {}

void FreeRun::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void FreeRun::continue_from(const FreeRun& before) {
  captured_ = before.captured_.load();
  redactions_.with(
      [&](auto& all) { all = before.redactions_.with([](const auto& t) { return t; }); });
}

FreeSourceStatus FreeRun::status() const {
  FreeSourceStatus status;
  status.captured = captured_;
  status.redactions = redactions_.with([](const auto& tally) { return tally; });
  status.last_error = error_.with([](const auto& error) { return error; });
  status.own.thrown = call_plugin([&] { status.own.json = source_->status_json(); });
  return status;
}

Result<void> FreeRun::write(std::vector<Event> events, std::optional<std::string> position) {
  std::vector<std::shared_ptr<const Event>> shared;
  shared.reserve(events.size());
  redact::Tally redactions;
  for (Event& event : events) {
    if (event.cluster.empty()) event.cluster = runtime_.cluster;
    if (event.host.empty()) event.host = runtime_.host;
    if (event.captured_at.nanoseconds == 0) event.captured_at = runtime_.clock.now();
    auto redacted = redactor_->redact(event);
    if (!redacted) redact::remove_payload(event, redacted.error().message());
    make_text_utf8(event);
    if (!redacted) {
      if (!append_dead(std::move(event), redacted.error().message())) {
        return Error{ErrorKind::kTransient, "stopped before an event was taken"};
      }
      continue;
    }
    redact::add(redactions, event.redactions);
    shared.push_back(std::make_shared<const Event>(std::move(event)));
  }
  const std::uint64_t count = shared.size();
  auto written = runtime_.journal.append_all(name_, std::move(shared), std::move(position), stop_);
  if (!written) return written;
  captured_ += count;
  redactions_.with([&](auto& tally) { redact::add(tally, redactions); });
  return written;
}

// An event that could not be redacted is not delivered to anybody.
bool FreeRun::append_dead(Event event, const std::string& reason) {
  Journal::Append item;
  item.source = name_;
  item.event = std::make_shared<const Event>(std::move(event));
  item.dead = reason;
  return runtime_.journal.append(std::move(item), stop_);
}

std::optional<std::string> FreeRun::position() const { return runtime_.journal.position(name_); }

void FreeRun::run(const std::stop_token& stop) noexcept {
  name_thread("source", name_);
  auto delay = kFirstRestartPause;
  while (!stop.stop_requested()) {
    auto ended = call(stop, false);
    if (stop.stop_requested()) return;
    if (!ended) {
      error_.with([&](auto& error) { error = printable(ended.error().message()); });
      runtime_.log.warning("SOURCE_FAILED", "a source ended with an error and is started again",
                           {{"source", name_}, {"reason", ended.error().message()}});
    }
    pause_until(stop, runtime_.clock.steady() + delay);
    delay = std::min(delay * 2, kLongestRestartPause);
  }
}

Result<void> FreeRun::call(const std::stop_token& stop, bool once) {
  stop_ = stop;
  return call_plugin("the plugin", ErrorKind::kPermanent,
                     [&] { return source_->run(*this, stop, once); });
}

}  // namespace scriptorium

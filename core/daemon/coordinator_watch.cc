#include "core/daemon/coordinator_watch.h"

#include <algorithm>
#include <utility>

#include "core/base/thread_name.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

using std::chrono::seconds;

constexpr seconds kInterval{3600};
constexpr seconds kFirstAfterFailure{1};
constexpr seconds kMostAfterFailure{300};
constexpr seconds kPatience{60};  // for the scheduler

}  // namespace

CoordinatorWatch::CoordinatorWatch(std::string source, std::string cluster,
                                   const SpoolAdapter& adapter, Sinks sinks, Logger& log,
                                   const Clock& clock)
    : source_(std::move(source)),
      cluster_(std::move(cluster)),
      adapter_(adapter),
      sinks_(std::move(sinks)),
      log_(log),
      clock_(clock) {}

void CoordinatorWatch::start() {
  thread_.start([this](const std::stop_token& stop) { run(stop); });
}

void CoordinatorWatch::ask_now() {
  wanted_.with_notify([](std::uint64_t& wanted) { ++wanted; });
}

void CoordinatorWatch::run(const std::stop_token& stop) noexcept {
  name_thread("coordinators", source_);
  seconds after_failure = kFirstAfterFailure;
  bool said = false;  // of this outage
  while (!stop.stop_requested()) {
    const std::uint64_t before = wanted_.with([](std::uint64_t wanted) { return wanted; });
    const auto done = round(stop);
    if (stop.stop_requested()) return;
    if (done) said = false;
    if (!done && after_failure == kMostAfterFailure && !std::exchange(said, true)) {
      log_.warning("COORDINATORS_UNKNOWN", "who coordinates which accounts is not known",
                   {{"source", source_}, {"reason", done.error().message()}});
    }
    const SteadyTime next = std::chrono::steady_clock::now() + (done ? kInterval : after_failure);
    after_failure = done ? kFirstAfterFailure : std::min(after_failure * 2, kMostAfterFailure);
    wanted_.wait_until(stop, next, [&](std::uint64_t wanted) { return wanted > before; });
  }
}

Result<void> CoordinatorWatch::round(const std::stop_token& stop) const {
  const auto call = [](const std::string& who, const auto& what) {
    return call_plugin(who, ErrorKind::kTransient, what);
  };
  std::vector<std::shared_ptr<Sink>> keepers;
  for (std::shared_ptr<Sink>& sink : sinks_()) {
    const auto keeps = call("a sink", [&]() -> Result<bool> {
      if (sink->searchable() == nullptr) return false;
      const auto known = sink->searchable()->coordinators();
      return known || known.error().kind() != ErrorKind::kInvalidConfig;
    });
    if (keeps && *keeps) keepers.push_back(std::move(sink));
  }
  if (keepers.empty()) return {};
  CoordinatorList list{.cluster = cluster_, .asked_at = clock_.now(), .accounts = {}};
  auto accounts = call("the plugin", [&] {
    return adapter_.coordinators(stop, std::chrono::steady_clock::now() + kPatience);
  });
  if (!accounts) return accounts.error();
  if (!*accounts) return {};
  list.accounts = **std::move(accounts);
  Result<void> all;
  for (const std::shared_ptr<Sink>& sink : keepers) {
    auto kept = call("a sink", [&] { return sink->searchable()->keep_coordinators(list); });
    if (!kept) all = std::move(kept);
  }
  return all;
}

}  // namespace scriptorium

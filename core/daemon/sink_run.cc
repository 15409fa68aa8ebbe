#include "core/daemon/sink_run.h"

#include <algorithm>
#include <random>
#include <utility>

#include "core/daemon/reload.h"
#include "core/delivery/parts.h"
#include "core/plugin/call_plugin.h"
#include "core/plugin/call_within.h"

namespace scriptorium {

namespace {

Result<std::vector<std::string>> directories_of(const std::string& name,
                                                const std::shared_ptr<Sink>& sink) {
  auto answer = call_within(kFactoryTimeLimit, [sink] {
    return call_plugin("the plugin", ErrorKind::kInvalidConfig,
                       [&] { return Result<std::vector<std::string>>{sink->directories()}; });
  });
  if (!answer)
    answer = Error{ErrorKind::kInvalidConfig, "the plugin does not say which directories it uses"};
  if (!*answer) return answer->error().with_context("sink." + name);
  return *std::move(answer);
}

}  // namespace

SinkRun::SinkRun(const LoadedSink& sink, const Runtime& runtime, std::shared_ptr<Sink> made,
                 std::vector<std::string> directories)
    : name_(sink.instance.name),
      version_(version_of(sink, runtime)),
      plugin_(sink.plugin.descriptor->name),
      config_(sink.instance.common),
      runtime_(runtime),
      sink_(std::move(made)),
      directories_(std::move(directories)) {}

std::string SinkRun::version_of(const LoadedSink& sink, const Runtime& runtime) {
  return fingerprint(sink.instance.table, sink.plugin.file, runtime.cluster, runtime.host);
}

Result<std::unique_ptr<SinkRun>> SinkRun::make(const LoadedSink& sink, const Runtime& runtime) {
  const auto known = runtime.journal.usage().sinks;
  const auto before = std::ranges::find(known, sink.instance.name, &journal::SinkState::name);
  const PluginContext context{.name = sink.instance.name,
                              .cluster = runtime.cluster,
                              .log = runtime.log,
                              .clock = runtime.clock,
                              .acknowledged = before == known.end() ? 0 : before->acknowledged};
  auto made = create_sink(sink.plugin, sink.instance.table, context);
  if (!made) return made.error();
  std::shared_ptr<Sink> shared = *std::move(made);
  auto directories = directories_of(sink.instance.name, shared);
  if (!directories) return directories.error();
  return std::make_unique<SinkRun>(sink, runtime, std::move(shared), *std::move(directories));
}

Result<void> SinkRun::register_with_journal() {
  auto id = runtime_.journal.register_sink(name_, config_.kinds);
  if (!id) return id.error().with_context("sink." + name_);
  id_ = *id;
  return {};
}

void SinkRun::start(std::shared_future<void> after) {
  const auto start_sink = [this, after = std::move(after)]() -> Result<void> {
    if (after.valid()) after.wait();
    if (runtime_.claims != nullptr) {
      if (auto claimed = runtime_.claims->claim(name_, directories_); !claimed) return claimed;
    }
    return call_plugin("the plugin", ErrorKind::kTransient, [&] { return sink_->start(); });
  };
  std::random_device seed;
  dispatcher_ = std::make_unique<Dispatcher>(
      name_, config_, *sink_, runtime_.journal, id_, runtime_.log, runtime_.clock,
      (std::uint64_t{seed()} << 32) | seed(), runtime_.crashes, start_sink);
  dispatcher_->start();
}

Result<void> SinkRun::await_start(SteadyTime deadline) {
  const auto started = dispatcher_->await_start(deadline);
  if (started || started.error().kind() != ErrorKind::kInvalidConfig) return {};
  return started.error().with_context("sink." + name_);
}

bool SinkRun::stop(SteadyTime deadline) {
  if (dispatcher_ == nullptr) return true;
  if (!dispatcher_->stop(deadline)) return false;
  if (runtime_.claims != nullptr) runtime_.claims->release(name_);
  return true;
}

bool SinkRun::may_be_archive() const { return delivery::gets_whole_events(config_); }

std::uint64_t SinkRun::settled_events() const {
  const Dispatcher::Status status = dispatcher_->status();
  return status.acknowledged + status.rejected;
}

bool SinkRun::at_rest() const {
  if (dispatcher_->idle()) return true;
  const Dispatcher::Status status = dispatcher_->status();
  return (status.next_attempt_in_ms && status.in_flight == 0) || status.not_ready;
}

SinkStatus SinkRun::status() const {
  SinkStatus status{name_, plugin_, dispatcher_->status(), {}, {}};
  status.call_under_way = status.dispatcher.call;
  const auto read = runtime_.archives != nullptr ? runtime_.archives->call_under_way(name_)
                                                 : std::optional<CallWatch::Call>{};
  if (read && (!status.call_under_way || read->since < status.call_under_way->since))
    status.call_under_way = read;
  status.own.thrown = call_plugin([&] { status.own.json = sink_->status_json(); });
  return status;
}

}  // namespace scriptorium

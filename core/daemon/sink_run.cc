#include "core/daemon/sink_run.h"

#include <random>
#include <utility>

#include "core/daemon/reload.h"
#include "core/delivery/parts.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {

SinkRun::SinkRun(const LoadedSink& sink, const Runtime& runtime, std::shared_ptr<Sink> made)
    : name_(sink.instance.name),
      version_(version_of(sink, runtime)),
      plugin_(sink.plugin.descriptor->name),
      config_(sink.instance.common),
      runtime_(runtime),
      sink_(std::move(made)) {}

std::string SinkRun::version_of(const LoadedSink& sink, const Runtime& runtime) {
  return fingerprint(sink.instance.table, sink.plugin.file, runtime.cluster, runtime.host);
}

Result<std::unique_ptr<SinkRun>> SinkRun::make(const LoadedSink& sink, const Runtime& runtime) {
  const PluginContext context{sink.instance.name, runtime.cluster, runtime.log, runtime.clock};
  auto made = create_sink(sink.plugin, sink.instance.table, context);
  if (!made) return made.error();
  return std::make_unique<SinkRun>(sink, runtime, *std::move(made));
}

Result<void> SinkRun::start() {
  const auto started =
      call_plugin("the plugin", ErrorKind::kTransient, [&] { return sink_->start(); });
  if (!started) {
    if (started.error().kind() == ErrorKind::kInvalidConfig)
      return started.error().with_context("sink." + name_);
    runtime_.log.warning("SINK_NOT_READY",
                         "a destination is not ready; its events wait in the journal until it is",
                         {{"sink", name_}, {"reason", started.error().message()}});
  }
  auto id = runtime_.journal.register_sink(name_, config_.kinds);
  if (!id) return id.error().with_context("sink." + name_);
  std::random_device seed;
  dispatcher_ = std::make_unique<Dispatcher>(
      name_, config_, *sink_, runtime_.journal, *id, runtime_.log, runtime_.clock,
      (std::uint64_t{seed()} << 32) | seed(), runtime_.crashes);
  dispatcher_->start();
  return {};
}

bool SinkRun::stop(SteadyTime deadline) {
  return dispatcher_ == nullptr || dispatcher_->stop(deadline);
}

bool SinkRun::may_be_archive() const { return delivery::gets_whole_events(config_); }

bool SinkRun::at_rest() const {
  if (dispatcher_->idle()) return true;
  const Dispatcher::Status status = dispatcher_->status();
  return status.next_attempt_in_ms && status.in_flight == 0;
}

SinkStatus SinkRun::status() const {
  SinkStatus status{name_, plugin_, dispatcher_->status(), {}};
  status.own.thrown = call_plugin([&] { status.own.json = sink_->status_json(); });
  return status;
}

}  // namespace scriptorium

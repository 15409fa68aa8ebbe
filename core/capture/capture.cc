#include "core/capture/capture.h"

#include <utility>

#include "core/base/thread_name.h"
#include "core/capture/capture_engine.h"

namespace scriptorium {

SpoolCapture::SpoolCapture(Options options, const SpoolAdapter& adapter, OpenedAccess access,
                           Journal& journal, Logger& log, const Clock& clock)
    : name_(options.name),
      engine_(std::make_unique<CaptureEngine>(std::move(options), adapter, std::move(access),
                                              journal, log, clock)) {}

SpoolCapture::~SpoolCapture() { stop(); }

Notifications SpoolCapture::wanted(const SourceConfig& common) {
  if (common.capture == "scan") return {false, false};
  if (common.capture == "inotify") return {true, false};
  return {true, true};
}

void SpoolCapture::start() {
  engine_->start();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void SpoolCapture::stop() {
  thread_.request_stop();
  engine_->wake();
  if (!thread_.joinable()) return;
  thread_.join();
  engine_->stop();
}

void SpoolCapture::run(const std::stop_token& stop) noexcept {
  name_thread("capture", name_);
  const std::stop_callback wake_on_stop(stop, [this] { engine_->wake(); });
  engine_->begin();
  while (!stop.stop_requested()) {
    const CaptureEngine::Pause pause = engine_->step(stop);
    if (!stop.stop_requested()) engine_->wait(pause);
  }
  engine_->end();
}

std::size_t SpoolCapture::run_once(std::chrono::milliseconds patience,
                                   const std::stop_token& stop) {
  return engine_->run_once(patience, stop);
}

void SpoolCapture::rescan() { engine_->rescan(); }
CaptureStatus SpoolCapture::status() const { return engine_->status(); }
bool SpoolCapture::unchanged(const CaptureMark& mark) const { return engine_->unchanged(mark); }

}  // namespace scriptorium

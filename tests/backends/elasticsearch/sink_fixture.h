#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/elasticsearch/sink.h"
#include "tests/backends/elasticsearch/fake_elasticsearch.h"
#include "tests/support/event_factory.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::elasticsearch {

using Fake = test::FakeElasticsearch;

inline ElasticsearchConfig config_for(const std::vector<std::string>& hosts) {
  ElasticsearchConfig config;
  config.hosts = hosts;
  config.index_name = *IndexName::parse(IndexName::kDefault);
  return config;
}

// A server, a configuration for it, and a sink on demand.
class SinkFixture : public ::testing::Test {
 protected:
  SinkFixture() { config_ = config_for({server_.url()}); }
  ~SinkFixture() override {
    // A clock that stands still: what hangs is given up at once.
    if (sink_ != nullptr) sink_->stop(clock_.steady());
  }

  ElasticsearchSink& sink() {
    if (sink_ == nullptr) {
      auto made = ElasticsearchSink::create(config_, context_);
      if (!made) throw std::runtime_error(made.error().message());
      sink_ = *std::move(made);
      const auto started = sink_->start();
      EXPECT_TRUE(started) << started.error().message();
    }
    return *sink_;
  }
  // Delivers and waits for all to be settled.
  void deliver(const std::vector<std::shared_ptr<const Event>>& events, std::uint32_t attempt = 1) {
    sink().deliver(outbox_.batch(events, attempt));
    ASSERT_TRUE(outbox_.wait_all_settled(std::chrono::seconds(60)))
        << outbox_.unsettled() << " of " << events.size() << " unsettled";
  }
  static std::vector<std::shared_ptr<const Event>> make_events(int count,
                                                               std::size_t script_bytes = 0) {
    std::vector<std::shared_ptr<const Event>> events;
    for (int i = 0; i < count; ++i) {
      events.push_back(test::make_event(
          std::to_string(1000 + i),
          "#!/bin/sh\n# " + std::to_string(i) + std::string(script_bytes, 'x') + "\n"));
    }
    return events;
  }
  void expect_all(Outcome outcome, const std::vector<std::shared_ptr<const Event>>& events) {
    for (const auto& event : events) {
      EXPECT_EQ(outbox_.outcome(event->job.id), outcome)
          << event->job.id << ": " << outbox_.reason(event->job.id);
    }
  }

  Fake server_;
  ElasticsearchConfig config_;
  test::FakeClock clock_;
  test::RecordingLogger log_;
  PluginContext context_{"search", "lab", log_, clock_};
  test::Outbox outbox_;
  test::TempDir directory_;
  std::unique_ptr<ElasticsearchSink> sink_;
};

}  // namespace scriptorium::elasticsearch

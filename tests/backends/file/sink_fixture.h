#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "backends/file/sink.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::file {

inline std::shared_ptr<const Event> share(Event event) {
  return std::make_shared<const Event>(std::move(event));
}

// A sink that keeps all files of a job in a directory of its own.
class FileSinkFixture : public ::testing::Test {
 protected:
  FileSinkFixture() {
    config_.root = directory_.path_to("archive");
    config_.acl = AclMode::kBestEffort;
    config_.kinds.assign(kFileKinds.begin(), kFileKinds.end());
  }
  std::unique_ptr<FileSink> make() {
    auto sink = FileSink::create(config_, context_);
    EXPECT_TRUE(sink) << sink.error().message();
    return *std::move(sink);
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  PluginContext context_{"archive", "lab", log_, system_clock()};
  FileConfig config_;
  test::Outbox outbox_;
};

}  // namespace scriptorium::file

#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "core/journal/journal.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::test {

// A journal in a folder of its own, and a sink's view of it. `Test`: testing::Test, or one with a
// parameter.
template <typename Test>
class JournalFixture : public Test {
 protected:
  void SetUp() override { open_journal(); }
  void TearDown() override { journal_.reset(); }

  void open_journal(std::uint64_t max_bytes = Journal::Options{}.max_bytes) {
    auto journal = Journal::open({.directory = state_dir_.path(), .max_bytes = max_bytes}, log_,
                                 system_clock());
    ASSERT_TRUE(journal) << journal.error().message();
    journal_ = *std::move(journal);
    auto sink = journal_->register_sink("test", {"*"});
    ASSERT_TRUE(sink) << sink.error().message();
    sink_ = *sink;
  }

  RecordingLogger log_;
  TempDir state_dir_;
  std::unique_ptr<Journal> journal_;
  Journal::SinkId sink_ = 0;
  std::uint64_t after_ = 0;  // what the sink has read
};

}  // namespace scriptorium::test

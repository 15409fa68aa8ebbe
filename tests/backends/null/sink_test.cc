#include "backends/null/sink.h"

#include <gtest/gtest.h>

#include "tests/support/event_factory.h"
#include "tests/support/scripted_sink.h"

namespace scriptorium::null {
namespace {

TEST(NullSinkTest, AcknowledgesAllAndHasNothingToShow) {
  NullSink sink;
  test::Outbox outbox;
  sink.deliver(outbox.batch({test::make_event("1"), test::make_event("2")}));
  EXPECT_EQ(outbox.outcome("1"), Outcome::kAcknowledged);
  EXPECT_EQ(outbox.outcome("2"), Outcome::kAcknowledged);
  const auto found = sink.find("1");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->empty());
}

}  // namespace
}  // namespace scriptorium::null

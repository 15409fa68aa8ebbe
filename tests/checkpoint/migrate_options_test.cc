#include "checkpoint/migrate/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

TEST(MigrateOptionsTest, AreReadInLongAndShortForms) {
  const auto options = parse_migrate_options(
      {"4711", "-w", "n[1-2]", "-xn3", "--partition=long", "-H", "--priority", "7", "--timeout=90s",
       "--jobs", "2", "--no-ckpt=wait", "--parallel-jobs=requeue", "--json", "-v", "12_3"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->jobs, (std::vector<std::string>{"4711", "12_3"}));
  EXPECT_EQ(options->nodes, "n[1-2]");
  EXPECT_EQ(options->excluded_nodes, "n3");
  EXPECT_EQ(options->partition, "long");
  EXPECT_EQ(options->priority, "7");
  EXPECT_EQ(options->timeout.count(), 90);
  EXPECT_EQ(options->moves_at_a_time, 2);
  EXPECT_EQ(options->no_checkpoint, NoCheckpoint::kWait);
  EXPECT_TRUE(options->requeues_parallel_jobs && options->holds && options->is_json &&
              options->is_verbose);
}

TEST(MigrateOptionsTest, LoseNoWorkUnlessThatIsAskedFor) {
  const auto options = parse_migrate_options({"--drain-node", "n1", "--reason", "new fan"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->drain_node, "n1");
  EXPECT_EQ(options->reason, "new fan");
  EXPECT_EQ(options->no_checkpoint, NoCheckpoint::kLeave);
  EXPECT_FALSE(options->requeues_parallel_jobs);
}

TEST(MigrateOptionsTest, AreRefusedWithWhatIsAllowed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "name either jobs or --drain-node"},
      {{"1", "--drain-node=n1"}, "name either jobs or --drain-node"},
      {{"all"}, "\"all\" is not the id of a job"},
      {{"1_"}, "is not the id of a job"},
      {{"1", "--no-ckpt=kill"}, "--no-ckpt is leave, wait or requeue, not \"kill\""},
      {{"1", "--parallel-jobs=yes"}, "--parallel-jobs is refuse or requeue"},
      {{"1", "--jobs=0"}, "--jobs is a number from 1 to 100"},
      {{"1", "--timeout=5"}, "--timeout is a time such as 90s or 10m"},
      {{"1", "--priority=high"}, "--priority is a number"},
      {{"1", "-w"}, "--nodelist needs a value"},
      {{"1", "-w", "n1 n2"}, "--nodelist is a name"},
      {{"1", "--json=yes"}, "--json takes no value"},
      {{"--drain-node=n[1-2]"}, "--drain-node is one node"},
      {{"--drain-node=n1", "--reason=a\nb"}, "--reason is a text of one line"},
      {{"--force", "1"}, "unknown option \"--force\""}};
  for (const auto& [words, message] : cases) {
    const auto options = parse_migrate_options(words);
    ASSERT_FALSE(options) << message;
    EXPECT_NE(options.error().message().find(message), std::string::npos)
        << options.error().message();
  }
}

}  // namespace
}  // namespace scriptorium::checkpoint

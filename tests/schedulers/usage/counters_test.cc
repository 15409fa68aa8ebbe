#include "schedulers/usage/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace scriptorium::usage {
namespace {

using namespace std::literals;
using ::testing::ElementsAre;
using ::testing::Optional;

// As kernel 6.18 writes it, shortened.
constexpr std::string_view kStatV1 =
    "cache 0\nrss 4096\nshmem 0\nswap 0\nhierarchical_memory_limit "
    "104857600\nhierarchical_memsw_limit 9223372036854771712\n"
    "total_cache 62914560\ntotal_rss 7864320\ntotal_rss_huge 0\ntotal_shmem 52428800\ntotal_swap "
    "1048576\n";

TEST(CountersTest, SharedMemoryIsPartOfWhatAJobNeedsAndOtherPageCacheIsNot) {
  const MemoryStat stat = parse_memory_stat_v1(kStatV1);
  EXPECT_THAT(stat.anon_bytes, Optional(7864320U));
  EXPECT_THAT(stat.shmem_bytes, Optional(52428800U));
  EXPECT_THAT(stat.swap_bytes, Optional(1048576U));
  EXPECT_THAT(stat.file_bytes, Optional(10485760U));
  EXPECT_THAT(stat.limit_bytes, Optional(104857600U));

  const MemoryStat second = parse_memory_stat_v2(
      "anon 7864320\nfile 62914560\nkernel 1\nshmem 52428800\nfile_mapped 1\n");
  EXPECT_THAT(second.anon_bytes, Optional(7864320U));
  EXPECT_THAT(second.shmem_bytes, Optional(52428800U));
  EXPECT_THAT(second.file_bytes, Optional(10485760U));
  EXPECT_EQ(second.swap_bytes, std::nullopt);
}

TEST(CountersTest, NoLimitIsAbsentNotNineExabytes) {
  EXPECT_EQ(parse_memory_stat_v1("hierarchical_memory_limit 9223372036854771712\n").limit_bytes,
            std::nullopt);
  EXPECT_EQ(whole_number("max\n"), std::nullopt);
  EXPECT_THAT(whole_number("137438953472\n"), Optional(137438953472U));
}

TEST(CountersTest, WhatIsMissingOrOddIsAbsent) {
  const MemoryStat stat =
      parse_memory_stat_v1("total_rss x\ntotal_shmem\n\ntotal_cache -1\nno newline");
  EXPECT_EQ(stat.anon_bytes, std::nullopt);
  EXPECT_EQ(stat.shmem_bytes, std::nullopt);
  EXPECT_EQ(stat.file_bytes, std::nullopt);
  EXPECT_EQ(whole_number(""), std::nullopt);
  EXPECT_EQ(whole_number("12 34\n"), std::nullopt);
  EXPECT_EQ(value_of("oom 1\noom_kill 3\noom_group_kill 9\n", "oom_kil"), std::nullopt);
  EXPECT_THAT(value_of("oom 1\noom_kill 3\noom_group_kill 9\n", "oom_kill"), Optional(3U));
}

TEST(CountersTest, TicksOnlySplitTheExactTime) {
  const CpuStat stat = cpu_time_v1("2007666000\n", "user 150\nsystem 50\n");
  EXPECT_THAT(stat.time_seconds, Optional(::testing::DoubleNear(2.007666, 1e-9)));
  EXPECT_THAT(stat.user_seconds, Optional(::testing::DoubleNear(1.50575, 1e-6)));
  EXPECT_THAT(stat.system_seconds, Optional(::testing::DoubleNear(0.501916, 1e-5)));
  // 75 ms of work without a tick: that there was none says nothing about user or system.
  const CpuStat untold = cpu_time_v1("75400000\n", "user 0\nsystem 0\n");
  EXPECT_THAT(untold.time_seconds, Optional(::testing::DoubleNear(0.0754, 1e-9)));
  EXPECT_EQ(untold.user_seconds, std::nullopt);
}

TEST(CountersTest, CpuStatOfTheSecondVersionHasThrottlingOnlyWithTheController) {
  const CpuStat bare =
      parse_cpu_stat_v2("usage_usec 5231421\nuser_usec 5000100\nsystem_usec 231321\n");
  EXPECT_THAT(bare.time_seconds, Optional(::testing::DoubleNear(5.231421, 1e-9)));
  EXPECT_EQ(bare.throttled_seconds, std::nullopt);
  EXPECT_THAT(
      parse_cpu_stat_v2("usage_usec 1\nnr_throttled 2\nthrottled_usec 1500000\n").throttled_seconds,
      Optional(1.5));
}

TEST(CountersTest, PressureIsTheTotalOfItsLine) {
  constexpr auto kText =
      "some avg10=43.12 avg60=24.57 avg300=11.66 total=12500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=300000\n"sv;
  EXPECT_THAT(pressure_seconds(kText, "some"), Optional(12.5));
  EXPECT_THAT(pressure_seconds(kText, "full"), Optional(0.3));
  EXPECT_EQ(pressure_seconds("", "some"), std::nullopt);
}

TEST(CountersTest, BytesOfAllDevicesAreAdded) {
  const IoBytes io = parse_io_stat_v2(
      "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n259:0 rbytes=1 wbytes=2\n");
  EXPECT_THAT(io.read_bytes, Optional(4097U));
  EXPECT_THAT(io.written_bytes, Optional(8194U));
  EXPECT_THAT(parse_io_stat_v2("").read_bytes, Optional(0U))
      << "no line means that no device was used";
}

TEST(CountersTest, ZeroFromTheFirstVersionsBlockControllerIsNotMeasured) {
  EXPECT_EQ(parse_blkio("8:0 Read 0\n8:0 Write 0\nTotal 0\n").read_bytes, std::nullopt);
  const IoBytes io = parse_blkio("8:0 Read 4096\n8:0 Write 0\n8:16 Read 4096\nTotal 8192\n");
  EXPECT_THAT(io.read_bytes, Optional(8192U));
  EXPECT_THAT(io.written_bytes, Optional(0U));
}

TEST(CountersTest, CpusOfAListAreCounted) {
  EXPECT_THAT(count_cpus("0-3,8\n"), Optional(5U));
  EXPECT_THAT(count_cpus("7\n"), Optional(1U));
  EXPECT_EQ(count_cpus("\n"), std::nullopt);
  EXPECT_EQ(count_cpus("3-1\n"), std::nullopt);
  EXPECT_EQ(count_cpus("0-99999999999\n"), std::nullopt);
}

TEST(CountersTest, ACommandMayHoldAnythingAndAProcessIsStillRead) {
  const auto stat = parse_process_stat(
      "42 (a) b (c) ) R 1 42 42 0 -1 4194304 100 0 0 0 150 50 30 20 20 0 1 0 123456 1000000 200 "
      "18446744073709551615\n");
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->command, "a) b (c) ");
  EXPECT_EQ(stat->ticks, 200U);
  EXPECT_EQ(stat->children_ticks, 50U);
  EXPECT_EQ(stat->user_ticks, 180U);
  EXPECT_EQ(stat->start_ticks, 123456U);
  EXPECT_FALSE(parse_process_stat("42 (x) R 1 2 3").has_value());
  EXPECT_FALSE(parse_process_stat("").has_value());
}

TEST(CountersTest, DevicesThatAreAllowedOneByOneTellWhoseTheyAre) {
  EXPECT_THAT(allowed_minors("c 1:3 rwm\nc 195:2 rw\nc 195:255 rw\nc 226:128 rw\n", 195),
              Optional(ElementsAre(2U, 255U)));
  EXPECT_EQ(allowed_minors("a *:* rwm\n", 195), std::nullopt);
  EXPECT_EQ(allowed_minors("c 195:* rw\n", 195), std::nullopt);
}

TEST(CountersTest, TheFirstVariableOfANameCounts) {
  constexpr auto kEnvironment =
      "SLURM_JOB_GPUS_X=9\0SLURM_JOB_GPUS=0,2\0SLURM_JOB_GPUS=7\0EMPTY=\0"sv;
  EXPECT_THAT(variable(kEnvironment, "SLURM_JOB_GPUS"), Optional("0,2"sv));
  EXPECT_THAT(variable(kEnvironment, "EMPTY"), Optional(""sv));
  EXPECT_EQ(variable(kEnvironment, "SLURM"), std::nullopt);
  EXPECT_THAT(parse_index_list("0,2-3"), Optional(ElementsAre(0U, 2U, 3U)));
  EXPECT_EQ(parse_index_list("0,x"), std::nullopt);
  EXPECT_EQ(parse_index_list("0-99999999"), std::nullopt);
}

}  // namespace
}  // namespace scriptorium::usage

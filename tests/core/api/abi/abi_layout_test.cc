// Layout of everything that crosses between daemon and plugin. The build stamp keeps differently
// built ones apart; this test keeps us from changing a type without noticing, so that
// kPluginAbiVersion tells the truth to a person as well.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "core/api/plugin.h"

// Every one of these is supported by both our compilers for types without virtual bases.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace scriptorium {
namespace {

static_assert(kPluginAbiVersion == 14,
              "the version was raised: check the numbers below, then this one");

constexpr const char* kRemedy =
    "a type of core/api has changed: raise kPluginAbiVersion in core/api/plugin.h, then correct "
    "this test";

#define EXPECT_SIZE(type, size) EXPECT_EQ(sizeof(type), std::size_t{size}) << #type ": " << kRemedy
#define EXPECT_OFFSET(type, member, offset) \
  EXPECT_EQ(offsetof(type, member), std::size_t{offset}) << #type "::" #member ": " << kRemedy
#define EXPECT_SLOT(type, function, number) \
  EXPECT_EQ(slot(&type::function), number) << #type "::" #function "(): " << kRemedy

// Place of a virtual function in its table: a pointer to one holds 1 + its offset (Itanium C++
// ABI 2.3).
template <typename Function>
std::int64_t slot(Function function) {
  std::int64_t word = 0;
  static_assert(sizeof function >= sizeof word);
  std::memcpy(&word, &function, sizeof word);
  return (word - 1) / static_cast<std::int64_t>(sizeof(void*));
}

class AbiLayoutTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef __x86_64__
    GTEST_SKIP() << "the numbers are those of x86_64";
#endif
  }
};

TEST_F(AbiLayoutTest, TheDescriptorKeepsItsShape) {
  EXPECT_SIZE(PluginDescriptor, 80);
  EXPECT_OFFSET(PluginDescriptor, abi_version, 0);
  EXPECT_OFFSET(PluginDescriptor, descriptor_size, 4);
  EXPECT_OFFSET(PluginDescriptor, build_stamp, 8);
  EXPECT_OFFSET(PluginDescriptor, kind, 16);
  EXPECT_OFFSET(PluginDescriptor, name, 24);
  EXPECT_OFFSET(PluginDescriptor, summary, 32);
  EXPECT_OFFSET(PluginDescriptor, options, 40);
  EXPECT_OFFSET(PluginDescriptor, check, 48);
  EXPECT_OFFSET(PluginDescriptor, create_sink, 56);
  EXPECT_OFFSET(PluginDescriptor, create_spool_adapter, 64);
  EXPECT_OFFSET(PluginDescriptor, create_free_source, 72);
}

TEST_F(AbiLayoutTest, EventsKeepTheirShape) {
  EXPECT_SIZE(Timestamp, 8);
  EXPECT_OFFSET(Timestamp, nanoseconds, 0);
  EXPECT_SIZE(EventFile, 88);
  EXPECT_OFFSET(EventFile, name, 0);
  EXPECT_OFFSET(EventFile, size, 32);
  EXPECT_OFFSET(EventFile, sha256, 40);
  EXPECT_OFFSET(EventFile, bytes, 72);
  EXPECT_SIZE(JobArray, 112);
  EXPECT_OFFSET(JobArray, job_id, 0);
  EXPECT_OFFSET(JobArray, task_id, 32);
  EXPECT_OFFSET(JobArray, task_spec, 72);
  EXPECT_SIZE(HetJob, 48);
  EXPECT_OFFSET(HetJob, job_id, 0);
  EXPECT_OFFSET(HetJob, component, 32);
  EXPECT_OFFSET(HetJob, synthetic, 40);
  EXPECT_SIZE(Job, 424);
  EXPECT_OFFSET(Job, id, 0);
  EXPECT_OFFSET(Job, name, 32);
  EXPECT_OFFSET(Job, array, 72);
  EXPECT_OFFSET(Job, het, 192);
  EXPECT_OFFSET(Job, account, 248);
  EXPECT_OFFSET(Job, partition, 288);
  EXPECT_OFFSET(Job, qos, 328);
  EXPECT_OFFSET(Job, submitted_at, 368);
  EXPECT_OFFSET(Job, work_dir, 384);
  EXPECT_SIZE(User, 208);
  EXPECT_OFFSET(User, name, 0);
  EXPECT_OFFSET(User, id, 40);
  EXPECT_OFFSET(User, group_name, 80);
  EXPECT_OFFSET(User, group_id, 120);
  EXPECT_OFFSET(User, verified, 160);
  EXPECT_OFFSET(User, unverified_reason, 168);
  EXPECT_SIZE(ScriptInfo, 112);
  EXPECT_OFFSET(ScriptInfo, interpreter, 0);
  EXPECT_OFFSET(ScriptInfo, directives, 40);
  EXPECT_OFFSET(ScriptInfo, modules, 64);
  EXPECT_OFFSET(ScriptInfo, software, 88);
  EXPECT_SIZE(Software, 64);
  EXPECT_OFFSET(Software, name, 32);
  EXPECT_SIZE(Redaction, 128);
  EXPECT_OFFSET(Redaction, rule, 0);
  EXPECT_OFFSET(Redaction, where, 32);
  EXPECT_OFFSET(Redaction, count, 64);
  EXPECT_OFFSET(Redaction, kept, 72);
  EXPECT_OFFSET(Redaction, lines, 80);
  EXPECT_OFFSET(Redaction, names, 104);
  EXPECT_SIZE(Event, 1208);
  EXPECT_OFFSET(Event, id, 0);
  EXPECT_OFFSET(Event, kind, 32);
  EXPECT_OFFSET(Event, time, 64);
  EXPECT_OFFSET(Event, captured_at, 72);
  EXPECT_OFFSET(Event, capture, 80);
  EXPECT_OFFSET(Event, complete, 112);
  EXPECT_OFFSET(Event, cluster, 120);
  EXPECT_OFFSET(Event, scheduler, 152);
  EXPECT_OFFSET(Event, host, 184);
  EXPECT_OFFSET(Event, job, 216);
  EXPECT_OFFSET(Event, user, 640);
  EXPECT_OFFSET(Event, script, 848);
  EXPECT_OFFSET(Event, environment_format, 968);
  EXPECT_OFFSET(Event, files, 976);
  EXPECT_OFFSET(Event, parts, 1000);
  EXPECT_OFFSET(Event, redactions, 1024);
  EXPECT_OFFSET(Event, problems, 1048);
  EXPECT_OFFSET(Event, supersedes, 1072);
  EXPECT_OFFSET(Event, replaces, 1112);
  EXPECT_OFFSET(Event, lossy, 1152);
  EXPECT_OFFSET(Event, extra_json, 1176);
  EXPECT_SIZE(Variable, 32);
  EXPECT_OFFSET(Variable, name, 0);
  EXPECT_OFFSET(Variable, value, 16);
  EXPECT_SIZE(JsonOptions, 8);
  EXPECT_OFFSET(JsonOptions, script_text, 0);
  EXPECT_OFFSET(JsonOptions, environment, 1);
  EXPECT_OFFSET(JsonOptions, exact_times, 2);
  EXPECT_OFFSET(JsonOptions, indent, 4);
}

TEST_F(AbiLayoutTest, DeliveriesAndSinksKeepTheirShape) {
  EXPECT_SIZE(Settler::Settlement, 72);
  EXPECT_OFFSET(Settler::Settlement, token, 0);
  EXPECT_OFFSET(Settler::Settlement, outcome, 8);
  EXPECT_OFFSET(Settler::Settlement, reason, 16);
  EXPECT_OFFSET(Settler::Settlement, hint, 48);
  EXPECT_OFFSET(Settler::Settlement, by_destructor, 64);
  EXPECT_SIZE(Delivery, 48);
  EXPECT_SIZE(PluginContext, 96);
  EXPECT_OFFSET(PluginContext, name, 0);
  EXPECT_OFFSET(PluginContext, cluster, 32);
  EXPECT_OFFSET(PluginContext, executables, 88);
  EXPECT_SIZE(Executable, 96);
  EXPECT_OFFSET(Executable, command, 0);
  EXPECT_OFFSET(Executable, path, 32);
  EXPECT_OFFSET(Executable, build_id, 64);
  EXPECT_SLOT(Executables, find, 2);
  EXPECT_SIZE(StoredFile, 80);
  EXPECT_OFFSET(StoredFile, name, 0);
  EXPECT_OFFSET(StoredFile, location, 32);
  EXPECT_OFFSET(StoredFile, bytes, 64);
  EXPECT_SIZE(StoredJob, 88);
  EXPECT_OFFSET(StoredJob, event_id, 0);
  EXPECT_OFFSET(StoredJob, location, 32);
  EXPECT_OFFSET(StoredJob, files, 64);
}

TEST_F(AbiLayoutTest, SpoolAdaptersKeepTheirShape) {
  EXPECT_SIZE(SpoolPath, 40);
  EXPECT_OFFSET(SpoolPath, role, 0);
  EXPECT_OFFSET(SpoolPath, entry, 8);
  EXPECT_OFFSET(SpoolPath, file, 24);
  EXPECT_SIZE(SpoolFile, 104);
  EXPECT_OFFSET(SpoolFile, name, 0);
  EXPECT_OFFSET(SpoolFile, stat, 32);
  EXPECT_OFFSET(SpoolFile, bytes, 80);
  EXPECT_OFFSET(SpoolFile, truncated, 96);
  EXPECT_SIZE(SpoolEntry, 56);
  EXPECT_OFFSET(SpoolEntry, key, 0);
  EXPECT_OFFSET(SpoolEntry, files, 32);
  EXPECT_SIZE(Assessment, 32);
  EXPECT_OFFSET(Assessment, state, 0);
  EXPECT_OFFSET(Assessment, settle, 8);
  EXPECT_OFFSET(Assessment, reason, 16);
  EXPECT_SIZE(ParsedJob, 920);
  EXPECT_OFFSET(ParsedJob, job, 0);
  EXPECT_OFFSET(ParsedJob, user, 424);
  EXPECT_OFFSET(ParsedJob, script_file, 632);
  EXPECT_OFFSET(ParsedJob, script, 664);
  EXPECT_OFFSET(ParsedJob, script_info, 680);
  EXPECT_OFFSET(ParsedJob, environment, 792);
  EXPECT_OFFSET(ParsedJob, environment_format, 808);
  EXPECT_OFFSET(ParsedJob, environment_guessed, 812);
  EXPECT_OFFSET(ParsedJob, more_files, 816);
  EXPECT_OFFSET(ParsedJob, problems, 840);
  EXPECT_OFFSET(ParsedJob, mixed_files, 864);
  EXPECT_OFFSET(ParsedJob, extra_json, 888);
  EXPECT_SIZE(OwnerAnswer, 608);
  EXPECT_OFFSET(OwnerAnswer, state, 0);
  EXPECT_OFFSET(OwnerAnswer, user, 8);
  EXPECT_OFFSET(OwnerAnswer, name, 216);
  EXPECT_OFFSET(OwnerAnswer, account, 256);
  EXPECT_OFFSET(OwnerAnswer, partition, 296);
  EXPECT_OFFSET(OwnerAnswer, qos, 336);
  EXPECT_OFFSET(OwnerAnswer, work_dir, 376);
  EXPECT_OFFSET(OwnerAnswer, array, 416);
  EXPECT_OFFSET(OwnerAnswer, het, 536);
  EXPECT_OFFSET(OwnerAnswer, submitted_at, 592);
  EXPECT_SIZE(OwnerQuery, 56);
  EXPECT_OFFSET(OwnerQuery, event, 0);
  EXPECT_OFFSET(OwnerQuery, script_mtime_ns, 8);
  EXPECT_OFFSET(OwnerQuery, entry_unchanged, 16);
  EXPECT_OFFSET(OwnerQuery, since, 48);
  EXPECT_SIZE(SchedulerLoad, 56);
  EXPECT_OFFSET(SchedulerLoad, share, 48);
  EXPECT_SIZE(NumberUse, 16);
  EXPECT_OFFSET(NumberUse, number, 0);
  EXPECT_OFFSET(NumberUse, kind, 8);
}

TEST_F(AbiLayoutTest, OptionsKeepTheirShape) {
  EXPECT_SIZE(Position, 40);
  EXPECT_OFFSET(Position, file, 0);
  EXPECT_OFFSET(Position, line, 32);
  EXPECT_SIZE(Table, 104);
  EXPECT_OFFSET(Table, entries, 0);
  EXPECT_OFFSET(Table, position, 24);
  EXPECT_OFFSET(Table, path, 64);
  EXPECT_OFFSET(Table, damaged, 96);
  EXPECT_SIZE(Value, 152);
  EXPECT_OFFSET(Value, data, 0);
  EXPECT_OFFSET(Value, position, 112);
  EXPECT_SIZE(TableEntry, 184);
  EXPECT_OFFSET(TableEntry, key, 0);
  EXPECT_OFFSET(TableEntry, value, 32);
  EXPECT_SIZE(Problem, 200);
  EXPECT_OFFSET(Problem, position, 0);
  EXPECT_OFFSET(Problem, key, 40);
  EXPECT_OFFSET(Problem, problem, 72);
  EXPECT_OFFSET(Problem, allowed, 104);
  EXPECT_OFFSET(Problem, given, 136);
  EXPECT_OFFSET(Problem, did_you_mean, 168);
  EXPECT_SIZE(Problems, 24);
  EXPECT_SIZE(Secret, 32);
  EXPECT_SIZE(OptionInfo, 168);
  EXPECT_OFFSET(OptionInfo, name, 0);
  EXPECT_OFFSET(OptionInfo, type, 32);
  EXPECT_OFFSET(OptionInfo, default_value, 64);
  EXPECT_OFFSET(OptionInfo, allowed, 96);
  EXPECT_OFFSET(OptionInfo, help, 128);
  EXPECT_OFFSET(OptionInfo, required, 160);
  EXPECT_OFFSET(OptionInfo, secret, 161);
}

TEST_F(AbiLayoutTest, ListingsKeepTheirShape) {
  EXPECT_SIZE(ReadableSink::Query, 32);
  EXPECT_OFFSET(ReadableSink::Query, kinds, 0);
  EXPECT_OFFSET(ReadableSink::Query, since, 24);
  EXPECT_SIZE(ReadableSink::Page, 72);
  EXPECT_OFFSET(ReadableSink::Page, events, 0);
  EXPECT_OFFSET(ReadableSink::Page, position, 24);
  EXPECT_OFFSET(ReadableSink::Page, end, 56);
  EXPECT_OFFSET(ReadableSink::Page, skipped, 64);
}

TEST_F(AbiLayoutTest, TheSmallTypesBeneathKeepTheirShape) {
  EXPECT_SIZE(LogField, 64);
  EXPECT_OFFSET(LogField, key, 0);
  EXPECT_OFFSET(LogField, value, 32);
  EXPECT_SIZE(FileStat, 48);
  EXPECT_OFFSET(FileStat, device, 0);
  EXPECT_OFFSET(FileStat, inode, 8);
  EXPECT_OFFSET(FileStat, size, 16);
  EXPECT_OFFSET(FileStat, links, 24);
  EXPECT_OFFSET(FileStat, mtime_ns, 32);
  EXPECT_OFFSET(FileStat, owner, 40);
  EXPECT_OFFSET(FileStat, mode, 44);
  EXPECT_SIZE(OwnJob::Place, 72);
  EXPECT_OFFSET(OwnJob::Place, job, 0);
  EXPECT_OFFSET(OwnJob::Place, node, 32);
  EXPECT_OFFSET(OwnJob::Place, is_launched, 64);
  EXPECT_OFFSET(OwnJob::Place, measures, 65);
  EXPECT_OFFSET(OwnJob::Place, merges, 66);
  EXPECT_SIZE(UniqueFd, 4);
  EXPECT_SIZE(Error, 40);
  EXPECT_SIZE(Result<void>, 48);
  EXPECT_SIZE(Result<std::string>, 48);
  EXPECT_SIZE(Result<std::unique_ptr<Sink>>, 48);
}

TEST_F(AbiLayoutTest, VirtualFunctionsKeepTheirPlaces) {
  EXPECT_SLOT(Sink, check, 2);
  EXPECT_SLOT(Sink, start, 3);
  EXPECT_SLOT(Sink, deliver, 4);
  EXPECT_SLOT(Sink, stop, 5);
  EXPECT_SLOT(Sink, find, 6);
  EXPECT_SLOT(Sink, setup, 7);
  EXPECT_SLOT(Sink, status_json, 8);
  EXPECT_SLOT(Sink, batches_under_way, 9);
  EXPECT_SLOT(Sink, readable, 10);
  EXPECT_SLOT(Sink, directories, 11);
  EXPECT_SLOT(Sink, rewritable, 12);
  EXPECT_SLOT(Sink, searchable, 13);
  EXPECT_SLOT(Sink, maintained, 14);
  EXPECT_SLOT(ReadableSink, fetch, 2);
  EXPECT_SLOT(ReadableSink, list, 3);
  EXPECT_SLOT(RewritableSink, takes_directories, 2);
  EXPECT_SLOT(RewritableSink, rewrite, 3);
  EXPECT_SLOT(MaintainedSink, check, 2);
  EXPECT_SLOT(MaintainedSink, stats, 3);
  EXPECT_SLOT(MaintainedSink, rewrite, 4);
  EXPECT_SLOT(SpoolAdapter, scheduler, 2);
  EXPECT_SLOT(SpoolAdapter, spool_root, 3);
  EXPECT_SLOT(SpoolAdapter, classify, 4);
  EXPECT_SLOT(SpoolAdapter, assess, 5);
  EXPECT_SLOT(SpoolAdapter, parse, 6);
  EXPECT_SLOT(SpoolAdapter, path_of, 7);
  EXPECT_SLOT(SpoolAdapter, file_names, 8);
  EXPECT_SLOT(SpoolAdapter, make_resolver, 9);
  EXPECT_SLOT(SpoolAdapter, make_late_owner_resolver, 10);
  EXPECT_SLOT(SpoolAdapter, check_root, 11);
  EXPECT_SLOT(SpoolAdapter, number_of, 12);
  EXPECT_SLOT(SpoolAdapter, make_number_resolver, 13);
  EXPECT_SLOT(SpoolAdapter, compare_with_scheduler, 14);
  EXPECT_SLOT(SpoolAdapter, kept_under, 15);
  EXPECT_SLOT(SpoolAdapter, coordinators, 16);
  EXPECT_SLOT(OwnerResolver, min_interval, 2);
  EXPECT_SLOT(OwnerResolver, load, 3);
  EXPECT_SLOT(OwnerResolver, resolve, 4);
  EXPECT_SLOT(OwnerResolver, check, 5);
  EXPECT_SLOT(NumberResolver, numbers, 2);
  EXPECT_SLOT(FreeSource, check, 2);
  EXPECT_SLOT(FreeSource, run, 3);
  EXPECT_SLOT(FreeSource, status_json, 4);
  EXPECT_SLOT(FreeSource, own_job, 5);
  EXPECT_SLOT(OwnJob, place, 2);
  EXPECT_SLOT(OwnJob, step, 3);
  EXPECT_SLOT(OwnJob, next_step, 4);
  EXPECT_SLOT(OwnJob, notify_fd, 5);
  EXPECT_SLOT(OwnJob, part, 6);
  EXPECT_SLOT(OwnJob, merge, 7);
  EXPECT_SLOT(EventWriter, write, 2);
  EXPECT_SLOT(EventWriter, position, 3);
  EXPECT_SLOT(Settler, settled, 2);
  EXPECT_SLOT(Logger, log, 2);
  EXPECT_SLOT(Clock, now, 2);
  EXPECT_SLOT(Clock, steady, 3);
}

}  // namespace
}  // namespace scriptorium

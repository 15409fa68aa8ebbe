#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/core/capture/simulated_spool.h"

// The table on what a real pbs_server did to its spool, as inotify recorded it
// (tests/fixtures/torque/traces): HH:MM:SS.micros FOLDER/NAME MASK ... Contents are made up.
namespace scriptorium::test {
namespace {

namespace fs = std::filesystem;
using Method = SimulatedSpool::Method;

struct Line {
  std::chrono::microseconds time{};
  std::string key, file, mask;
};

// Those of scripts and records; the server's temporary files and the other folders are foreign.
std::vector<Line> read_trace(const fs::path& file) {
  std::vector<Line> lines;
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);) {
    std::istringstream words(text);
    std::string time, path, mask;
    words >> time >> path >> mask;
    const fs::path name(path);
    const std::string suffix = name.extension();
    if (!path.starts_with("server_priv/jobs/") ||
        (suffix != ".SC" && suffix != ".JB" && suffix != ".TA"))
      continue;
    const auto part = [&](std::size_t at) { return std::stol(time.substr(at, 2)); };
    const auto seconds = std::chrono::seconds((part(0) * 60 + part(3)) * 60 + part(6));
    lines.push_back({.time = seconds + std::chrono::microseconds(std::stol(time.substr(9))),
                     .key = (name.parent_path() / name.stem()).string(),
                     .file = suffix.substr(1),
                     .mask = mask.substr(0, mask.find('|'))});
  }
  return lines;
}

Assessment assess(const SpoolEntry& entry) {
  const auto has = [&](const char* name) {
    const SpoolFile* file = entry.file(name);
    return file != nullptr && !file->bytes->empty();
  };
  if (!has("SC")) return {.state = Assessment::State::kIgnore, .reason = "no script"};
  if (has("JB") || has("TA")) return {.state = Assessment::State::kComplete};
  return {.state = Assessment::State::kIncomplete, .reason = "no record"};
}

class EntryTableTraceTest : public testing::TestWithParam<fs::path> {
 protected:
  // Plays the trace; `pace`: one in so many changes is followed by a step.
  void play(Method method, std::uint64_t seed, std::uint64_t pace) {
    SimulatedSpool spool(method, false);
    spool.assess = assess;
    std::mt19937_64 random(seed);
    std::map<std::pair<std::string, std::string>, SimulatedSpool::FilePtr> open;
    std::vector<SimulatedSpool::FilePtr> scripts;  // that were closed
    std::optional<std::chrono::microseconds> before;
    spool.begin_scan();
    spool.step();
    for (const Line& line : read_trace(GetParam())) {
      spool.advance(std::clamp(line.time - before.value_or(line.time), std::chrono::microseconds{0},
                               std::chrono::microseconds{1'000'000}));
      before = line.time;
      auto& file = open[{line.key, line.file}];
      if (line.mask == "CREATE") {
        file = spool.create(line.key, line.file);
        // Written under another name, and then linked here.
        if (line.file != "SC") spool.write(file, "record");
      } else if (line.mask == "MODIFY" && file) {
        spool.write(file, "part " + std::to_string(random()) + "\n");
      } else if (line.mask == "CLOSE_WRITE" && file) {
        spool.close(line.key, line.file, file);
        if (line.file == "SC") scripts.push_back(file);
      } else if (line.mask == "DELETE") {
        spool.remove_file(line.key, line.file);
        file.reset();
      }
      if (random() % pace == 0) spool.step();
    }
    for (int i = 0; i < 40; ++i) {
      spool.advance(std::chrono::milliseconds(500));
      if (i % 8 == 0) spool.begin_scan();
      spool.step();
    }
    for (const auto& [id, count] : spool.ids) EXPECT_EQ(count, 1);
    EXPECT_EQ(spool.table().entries().inspections(), 0U);
    if (method != Method::kFanotify) return;
    EXPECT_TRUE(spool.missed.empty());
    for (const auto& script : scripts) {
      EXPECT_TRUE(std::any_of(spool.captured.begin(), spool.captured.end(), [&](const auto& c) {
        return c.script == script->bytes;
      })) << "a script that was closed is not there";
    }
  }
};

TEST_P(EntryTableTraceTest, EachScriptIsThereAndNothingIsTakenTwice) {
  for (const Method method : {Method::kFanotify, Method::kInotify, Method::kScan}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      for (const std::uint64_t pace : {1, 3, 30}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", pace " + std::to_string(pace));
        play(method, seed, pace);
        if (HasFailure()) return;
      }
    }
  }
}

std::vector<fs::path> traces() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(SCRIPTORIUM_FIXTURES) / "torque/traces"))
    found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

INSTANTIATE_TEST_SUITE_P(Torque, EntryTableTraceTest, testing::ValuesIn(traces()),
                         [](const auto& info) {
                           std::string name = info.param.stem();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace scriptorium::test

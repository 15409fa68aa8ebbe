#pragma once

#include <memory>
#include <string>

#include "core/api/searchable.h"
#include "tests/support/event_factory.h"

// Values of which no member has its default, and texts with any bytes.
namespace scriptorium::serve::test {

inline const std::string kAnyBytes("\xff\0 \x80\n", 5);

inline Query query() {
  Query text{.kind = Query::Kind::kText,
             .children = {},
             .part = JobPart::kEnvironment,
             .field = QueryField::kSoftware,
             .text = kAnyBytes,
             .name = "OMP_*",
             .prefix = true,
             .ignore_case = true,
             .from = -5,
             .to = std::int64_t{1} << 62,
             .percent = true,
             .position = 7};
  Query both{.kind = Query::Kind::kAnd};
  both.children = {text, {.kind = Query::Kind::kNot, .children = {text}}};
  return both;
}

inline JobRow row() {
  return {.cluster = "lab",
          .scheduler = "slurm",
          .id = "4711",
          .time = {1'795'275'000'123'456'789},
          .event_id = "e1",
          .name = kAnyBytes,
          .array_job_id = "4710",
          .array_task_spec = "0-9",
          .het_job_id = "4709",
          .user = "alice",
          .uid = "1001",
          .group = "users",
          .verified = true,
          .account = "chem",
          .partition = "batch",
          .qos = "normal",
          .work_dir = "/home/alice",
          .interpreter = "/bin/bash",
          .directives = {"--mem=1G", ""},
          .modules = {"GROMACS/2023"},
          .software = {"conda torch"},
          .script_sha256 = "ab",
          .script_size = 1,
          .environment_size = 2,
          .complete = false,
          .redacted = true,
          .family = ~std::uint64_t{0},
          .state = "FAILED",
          .exit_code = -1,
          .exit_signal = 9,
          .started_at = Timestamp{3},
          .ended_at = Timestamp{-4},
          .elapsed_seconds = 0.1,
          .cpu_seconds = 1e300,
          .cpus = 5,
          .cpu_ratio = 0.25,
          .memory_peak_bytes = 6,
          .memory_limit_bytes = 7,
          .gpus = 8,
          .gpu_ratio = 0.5,
          .time_limit_seconds = 9,
          .nodes = {"n1", "n2"},
          .findings = {"cpu_low"},
          .lives = 10,
          .runs = 11,
          .failed_runs = 12};
}

inline JobRun run() {
  return {.user = "alice",
          .uid = "1001",
          .verified = true,
          .account = "chem",
          .partition = "batch",
          .ended_at = {5 * kSecond},
          .core_seconds = 1,
          .gpu_seconds = 2,
          .unused_core_seconds = 3,
          .unused_gpu_seconds = 4,
          .nodes = {"n1"},
          .findings = {"cpu_low"},
          .programs = {{"python3", 9'000}},
          .modules = {"GROMACS/2023"},
          .cluster = "lab",
          .key = kAnyBytes,
          .event = nullptr};
}

}  // namespace scriptorium::serve::test

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/base/sha256.h"

namespace scriptorium::test {

inline EventFile make_file(std::string name, std::string bytes) {
  EventFile file;
  file.name = std::move(name);
  file.size = bytes.size();
  file.sha256 = sha256_hex(bytes);
  file.bytes = make_bytes(std::move(bytes));
  return file;
}

inline constexpr const char* kScript = "#!/bin/bash\n#SBATCH --time=00:10:00\nsrun hostname\n";

// 2026-11-21T01:26:22.364Z: when every made job was taken by its scheduler.
inline constexpr Timestamp kJobTime{1795224382'364'000'000};

// A whole job.script event of cluster "lab", by Slurm, of the verified user alice, to be changed as
// a test needs it. `variables` are NAME=value strings. The same arguments give the same event, id
// included.
inline Event make_event_value(const std::string& job_id, const std::string& script = kScript,
                              const std::vector<std::string>& variables = {"HOME=/home/alice",
                                                                           "USER=alice"}) {
  Event event;
  event.kind = "job.script";
  event.time = kJobTime;
  event.captured_at = Timestamp{kJobTime.nanoseconds + 2'114'000};
  event.capture = "scan";
  event.cluster = "lab";
  event.scheduler = "slurm";
  event.host = "ctl1";
  event.job.id = job_id;
  event.job.name = "md";
  event.job.account = "chem";
  event.job.partition = "batch";
  event.job.submitted_at = kJobTime;
  event.job.work_dir = "/home/alice/md";
  event.user.name = "alice";
  event.user.id = "1001";
  event.user.group_name = "chem";
  event.user.group_id = "2001";
  event.user.verified = true;
  event.script =
      ScriptInfo{.interpreter = "/bin/bash", .directives = {"--time=00:10:00"}, .modules = {}};

  std::string environment;
  for (const std::string& variable : variables) environment += variable + '\0';
  event.files.push_back(make_file("script", script));
  event.environment_format =
      environment.empty() ? EnvironmentFormat::kNone : EnvironmentFormat::kNulEnded;
  if (!environment.empty()) event.files.push_back(make_file("environment", std::move(environment)));
  event.id = event_id(event.cluster, event.scheduler, event.kind, job_id, kJobTime.nanoseconds,
                      event.files[0].sha256);
  return event;
}

// The same, shared and unchangeable, as journal and sinks take it.
inline std::shared_ptr<const Event> make_event(const std::string& job_id,
                                               const std::string& script = kScript,
                                               const std::vector<std::string>& variables = {
                                                   "HOME=/home/alice", "USER=alice"}) {
  return std::make_shared<const Event>(make_event_value(job_id, script, variables));
}

// The same job as it is delivered while its owner is not confirmed: the names are what its
// environment says.
inline Event make_unverified_event(const std::string& job_id, const std::string& script = kScript,
                                   const std::vector<std::string>& variables = {"HOME=/home/alice",
                                                                                "USER=mallory"}) {
  Event event = make_event_value(job_id, script, variables);
  event.user = {.name = "mallory",
                .group_name = "wheel",
                .verified = false,
                .unverified_reason = "the scheduler does not answer"};
  return event;
}

// What core makes of it when the owner is known: alice.
inline Event make_owned_event(const Event& unverified) {
  Event event = unverified;
  event.user = make_event_value(unverified.job.id).user;
  event.replaces = unverified.id;
  event.id = owned_event_id(unverified.id, *event.user.id);
  return event;
}

// As core has it where no archive and no journal holds the files any more.
inline Event without_bytes(Event event) {
  for (EventFile& file : event.files) file.bytes = nullptr;
  return event;
}

}  // namespace scriptorium::test

#include "schedulers/usage/events.h"

namespace scriptorium::usage {
namespace {

// What usage events say of the job beyond what every event does.
std::string job_members(const JobSeen& job, const Timestamp* ended) {
  std::string json = R"("job":{"started_at":")" +
                     format_rfc3339(job.started_at, TimePrecision::kMicroseconds) + '"';
  if (ended != nullptr)
    json += R"(,"ended_at":")" + format_rfc3339(*ended, TimePrecision::kMicroseconds) + '"';
  if (job.restarts) json += R"(,"restarts":)" + std::to_string(*job.restarts);
  if (job.sluid) json += R"(,"sluid":")" + *job.sluid + '"';  // 14 letters and digits
  return json + "}";
}

Event event_of(const std::string& cluster, const char* kind, const JobSeen& job) {
  Event event;
  event.kind = kind;
  event.cluster = cluster;
  event.scheduler = job.scheduler;
  event.host = job.node;
  event.job.id = job.job_id;
  if (job.uid) {
    event.user.id = std::to_string(*job.uid);
    event.user.verified = job.uid_trusted;
  }
  // Two users at the first look: then none of them is taken for the owner.
  if (!event.user.verified) event.user.unverified_reason = job.uid_problem;
  return event;
}

}  // namespace

Event sample_event(const std::string& cluster, const UsageSample& sample) {
  Event event = event_of(cluster, "usage.sample", sample.job);
  event.time = sample.time;
  event.capture =
      to_string(sample.source.cpu.value_or(sample.source.memory.value_or(Method::kProc)));
  const std::string started = std::to_string(sample.job.started_at.nanoseconds);
  const std::string time = std::to_string(sample.time.nanoseconds);
  event.id =
      event_id({cluster, event.scheduler, event.kind, event.job.id, started, event.host, time});
  event.extra_json =
      "{" + job_members(sample.job, nullptr) + ",\"usage\":" + usage_json(sample) + "}";
  return event;
}

Event node_event(const std::string& cluster, const NodeUsage& node) {
  Event event = event_of(cluster, "usage.node", node.job);
  event.time = node.job.started_at;
  event.capture = to_string(node.method());
  event.complete = node.complete();
  const std::string started = std::to_string(node.job.started_at.nanoseconds);
  event.id = event_id({cluster, event.scheduler, event.kind, event.job.id, started, event.host});
  event.extra_json =
      "{" + job_members(node.job, &node.ended_at) + ",\"usage\":" + usage_json(node) + "}";
  return event;
}

}  // namespace scriptorium::usage

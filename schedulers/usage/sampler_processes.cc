#include <algorithm>
#include <utility>

#include "schedulers/usage/sampler.h"
#include "schedulers/usage/sampler_slots.h"

// What the sampler learns of a job from its processes and from files of the prolog.
namespace scriptorium::usage {
namespace {

constexpr int kEnvironmentTries = 5;
constexpr std::uint32_t kNvidiaMajor = 195;
constexpr std::uint32_t kNvidiaControlMinors = 254;  // 254 modeset, 255 nvidiactl

// Processes whose real uid is read: when the owner is not known yet, and at each reading after
// that.
constexpr std::size_t kFirstOwnerChecks = 4096;
constexpr std::size_t kOwnerChecks = 64;

}  // namespace

// When a job that was there before we looked began: with its oldest process. The time of a control
// group's directory is the one when somebody first accessed it, so it may be later, but never
// earlier.
void Sampler::guess_start(Tracked& job) {
  const Timestamp now = clock_.now();
  double age = 0;
  for (const Group& group : job.groups) {
    Identity identity;
    if (!group.there || files_.identify(group.path, identity) != 0 || identity.mtime_ns <= 0)
      continue;
    age = std::max(age, static_cast<double>(now.nanoseconds - identity.mtime_ns) * 1e-9);
  }
  if (!job.leaves_known) find_leaves(job);
  age = std::max(age, oldest_age(files_, options_.proc, processes(job, true, true)).value_or(0));
  const auto back = std::chrono::nanoseconds(static_cast<std::int64_t>(age * 1e9));
  const auto inodes = job.life.state().inodes;
  JobSeen seen = job.life.state().job;
  seen.started_at = Timestamp{now.nanoseconds - back.count()};
  job.life = Life::begin(std::move(seen), clock_.steady() - back);
  job.life.state().inodes = inodes;
}

bool Sampler::has_process(const std::string& path, int depth) {
  std::string text;
  if (read_text(files_, path + "/cgroup.procs", text) == 0 && !parse_pids(text).empty())
    return true;
  if (depth == 0) return false;
  const auto below = list_directories(files_, path);
  return std::any_of(below.begin(), below.end(), [&](const DirectoryEntry& entry) {
    return has_process(path + "/" + entry.name, depth - 1);
  });
}

void Sampler::find_leaves(Tracked& job) {
  job.leaves.clear();
  // The first tree that has tasks, else the first that has steps: they all hold the same processes.
  for (const Controller controller :
       {Controller::kUnified, Controller::kMemory, Controller::kCpuacct, Controller::kFreezer,
        Controller::kCpuset}) {
    const Group& group = job.groups.at(index(controller));
    if (!group.there) continue;
    job.leaves.push_back({group.path, {}, false});
    for (const DirectoryEntry& step : list_directories(files_, group.path)) {
      if (!is_step(step.name)) continue;
      step_seen(job, step.name);
      const bool foreign = step.name == "step_extern";
      const std::string path = group.path + "/" + step.name;
      job.leaves.push_back({path, step.name, foreign});
      for (const DirectoryEntry& below : list_directories(files_, path)) {
        if (is_task(below.name))
          job.leaves.push_back({path + "/" + below.name, step.name, foreign});
        if (below.name == "slurm") job.leaves.push_back({path + "/slurm", step.name, true});
        if (below.name != "user") continue;
        job.leaves.push_back({path + "/user", step.name, foreign});
        for (const DirectoryEntry& task : list_directories(files_, path + "/user")) {
          job.leaves.push_back({path + "/user/" + task.name, step.name, foreign});
        }
      }
    }
    break;
  }
  job.leaves_known = true;
}

// `all_groups`: also of those that had none when they were read last, such as the ones between
// a job and its tasks.
std::vector<std::uint32_t> Sampler::processes(Tracked& job, bool foreign_too, bool all_groups) {
  std::vector<std::uint32_t> pids;
  std::string text;
  for (Leaf& leaf : job.leaves) {
    if ((leaf.foreign && !foreign_too) || (leaf.empty && !all_groups)) continue;
    if (read_text(files_, leaf.path + "/cgroup.procs", text) < 0) continue;
    leaf.empty = text.empty();
    if (leaf.empty) continue;
    const auto some = parse_pids(text);
    pids.insert(pids.end(), some.begin(), some.end());
  }
  return pids;
}

// A v2 path does not say whose job it is; the real uids of its processes do. A set-uid program
// keeps the real uid, one that takes another one (sudo, su) differs from the processes of the user:
// seen once, the job stays unverified.
void Sampler::learn_owner(Tracked& job, const std::vector<std::uint32_t>& pids) {
  JobSeen& seen = job.life.state().job;
  if (job.uid_in_path || seen.uid_problem) return;
  std::size_t left = seen.uid ? kOwnerChecks : kFirstOwnerChecks;
  std::optional<std::uint32_t> uid = seen.uid;
  for (const std::uint32_t pid : pids) {
    if (left-- == 0) break;
    const auto owner = process_owner(files_, options_.proc, pid);
    // slurmstepd, which is root's, is elsewhere, but may still be on its way to become the
    // user.
    if (!owner || (owner->uid == 0 && owner->name.starts_with("slurmstepd"))) continue;
    if (!uid) uid = owner->uid;
    if (*uid == owner->uid) continue;
    seen.uid_trusted = false;
    seen.uid_problem = "the job's processes run as several users: " + std::to_string(*uid) +
                       " and " + std::to_string(owner->uid);
    log_.warning("USAGE_OWNER_UNCERTAIN",
                 "the owner of a job is not verified, for its processes run as several users",
                 {{"job", seen.job_id}, {"reason", *seen.uid_problem}});
    return;
  }
  if (!uid) return;
  seen.uid = uid;
  seen.uid_trusted = true;
}

void Sampler::learn(Tracked& job, const std::vector<std::uint32_t>& pids) {
  JobSeen& seen = job.life.state().job;
  learn_owner(job, pids);
  if (job.environment_known || job.environment_tries >= kEnvironmentTries || pids.empty() ||
      seen.scheduler != "slurm")
    return;
  ++job.environment_tries;
  for (std::size_t i = 0; i < std::min<std::size_t>(pids.size(), 4); ++i) {
    const auto environment = job_environment(files_, options_.proc, pids[i]);
    if (!environment) continue;
    job.environment_known = true;
    seen.restarts = environment->restarts;
    job.gpus = environment->gpus;
    if (seen.sluid && seen.job_id == *seen.sluid) seen.job_id = *environment->job_id;
    return;
  }
}

void Sampler::read_prolog_files() {
  prolog_gpus_.clear();
  if (options_.gpu_jobs_dir.empty() || gpus_.empty()) return;
  std::vector<DirectoryEntry> entries;
  static_cast<void>(files_.list(options_.gpu_jobs_dir, entries));
  std::string text;
  for (const DirectoryEntry& entry : entries) {
    if (entry.directory ||
        read_text(files_, options_.gpu_jobs_dir + "/" + entry.name, text, 256) < 0)
      continue;
    std::string_view words = text;
    words = words.substr(0, words.find_first_of(" \n"));
    if (words.empty()) continue;
    GpuClaim& claim = prolog_gpus_[std::string(words)];
    if (const auto position = whole_number(entry.name)) {
      claim.indexes.push_back(static_cast<std::uint32_t>(*position));
    } else {
      claim.ids.push_back(entry.name);
    }
  }
}

void Sampler::claim_gpus(Tracked& job) {
  if (gpus_.empty()) return;
  GpuClaim claim;
  const JobSeen& seen = job.life.state().job;
  if (const auto found = prolog_gpus_.find(seen.job_id); found != prolog_gpus_.end())
    claim = found->second;
  if (const auto list = text(job, kDeviceList)) {
    if (auto minors = allowed_minors(*list, kNvidiaMajor)) {
      std::erase_if(*minors, [](std::uint32_t minor) { return minor >= kNvidiaControlMinors; });
      // Where devices are not constrained, all of them are allowed one by one: that says nothing.
      if (!minors->empty() && minors->size() < gpus_.size()) claim.minors = *std::move(minors);
    }
  }
  if (job.gpus) {
    if (auto indexes = parse_index_list(*job.gpus)) {
      claim.indexes.insert(claim.indexes.end(), indexes->begin(), indexes->end());
    }
  }
  if (!claim.indexes.empty() || !claim.ids.empty() || !claim.minors.empty())
    gpus_.claim(seen.key(), claim);
}

}  // namespace scriptorium::usage

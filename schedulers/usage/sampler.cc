#include "schedulers/usage/sampler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/path.h"
#include "schedulers/usage/sampler_slots.h"

namespace scriptorium::usage {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Readings of a young job, as seconds since its start: a sweep alone would hardly see a job that is
// shorter than the interval.
constexpr std::array kEarly = {1, 2, 5, 10, 20, 30};
// From this one on they are worth a usage.sample.
constexpr int kFirstSampled = 10;
// How long the last control group of a job may outlast the first one that is gone.
constexpr seconds kLinger{5};
// Without a process for so many sweeps, what is left is an empty directory, not a job.
constexpr std::uint32_t kEmptySweeps = 2;
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
constexpr int kEnvironmentTries = 5;
constexpr std::uint32_t kNvidiaMajor = 195;
constexpr std::uint32_t kNvidiaControlMinors = 254;  // 254 modeset, 255 nvidiactl

// Processes whose real uid is looked at: when the owner is not known yet, and at each reading after
// that.
constexpr std::size_t kFirstOwnerChecks = 4096;
constexpr std::size_t kOwnerChecks = 64;

// "slurm_n1/uid_1001" of the directory of a user's jobs, whatever the controller.
std::string owner_key(const std::string& path) {
  return path.substr(parent_of(parent_of(path)).size() + 1);
}

bool is_step(std::string_view name) { return name.starts_with("step_"); }

// The rest of the process needs descriptors too.
SamplerOptions within_limits(SamplerOptions options) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0)
    options.kept_files = std::min<std::size_t>(options.kept_files, files.rlim_cur / 2);
  return options;
}

}  // namespace

Sampler::Sampler(SamplerOptions options, Files& files, GpuMonitor& gpus, Logger& log,
                 const Clock& clock)
    : options_(within_limits(std::move(options))),
      files_(files),
      gpus_(gpus),
      log_(log),
      clock_(clock),
      tree_(options_.root, files),
      next_sweep_(clock.steady()),
      buffer_(kBufferBytes) {
  if (auto watcher = Watcher::open()) {
    watcher_ = *std::move(watcher);
  } else {
    log_.warning("USAGE_NO_INOTIFY",
                 "the end of jobs cannot be watched, so what they use after their last sweep is "
                 "not counted; raise "
                 "fs.inotify.max_user_instances",
                 {{"reason", watcher.error().message()}});
  }
  if (const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN); cpus > 0)
    node_cpus_ = static_cast<std::uint32_t>(cpus);
  std::string text;
  if (read_text(files_, options_.proc + "/meminfo", text) == 0) {
    const std::size_t at = text.find("MemTotal:");
    if (at != std::string::npos) {
      std::string_view line = std::string_view(text).substr(at + 9);
      line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
      if (const auto kilobytes = whole_number(line.substr(0, line.find(' '))))
        node_memory_ = *kilobytes * 1024;
    }
  }
}

Sampler::~Sampler() {
  for (auto& [name, job] : jobs_) close_files(*job);
}

// ---- what is there
// -------------------------------------------------------------------------------------------------

void Sampler::restore(std::vector<LifeState> lives, bool same_boot) {
  for (LifeState& state : lives) {
    if (!same_boot) {
      // The machine went down, and the job with it, some time after its last reading.
      end_at_last_reading(Life(std::move(state)));
      continue;
    }
    const JobSeen& job = state.job;
    restored_.insert_or_assign(
        job.scheduler + "/" + job.node + "/" + job.sluid.value_or(job.job_id), state);
  }
}

// Nobody saw its end: it lies behind its last reading, but how far is not known here.
void Sampler::end_at_last_reading(const Life& life) {
  const LifeState& state = life.state();
  const std::int64_t last_ns = std::max(state.last_ns, state.started_ns);
  const Timestamp last = state.readings > 0 ? state.last_time : state.job.started_at;
  NodeUsage node =
      life.finish(SteadyTime(std::chrono::nanoseconds(last_ns)), last, LastRead::kSample);
  if (!state.gpus.empty()) gpus_.restore(node.job.key(), state.gpus);
  node.gpus = gpus_.release(node.job.key());
  if (!node.gpus.empty()) node.source.gpu = gpus_.way();
  node.node_cpus = node_cpus_;
  node.node_memory_bytes = node_memory_;
  output_.ended.push_back(std::move(node));
  ++counts_.ended;
}

// Other groups than those that we knew, under the same names: what was before is a life of its own.
void Sampler::end_old_life(Tracked& job, Timestamp time, SteadyTime at) {
  const auto inodes = job.life.state().inodes;
  JobSeen seen = job.life.state().job;
  end_at_last_reading(job.life);
  seen.batch_step = false;
  seen.other_steps = false;
  seen.restarts.reset();
  seen.started_at = time;
  job.life = Life::begin(std::move(seen), at);
  job.life.state().inodes = inodes;
  job.leaves_known = false;
  job.environment_known = false;
  job.environment_tries = 0;
  job.kills.clear();
  job.failures.reset();
  job.io.reset();
  job.at_end = false;
  ++counts_.started;
}

void Sampler::refresh_parents() {
  // What appears between listing and watching is found by the next round, as the watch stands then.
  for (int round = 0; round < 8; ++round) {
    bool news = false;
    CgroupTree::Found found = tree_.find();
    std::set<std::string> now(found.above.begin(), found.above.end());
    // Also those that were there before: a directory may have been removed and made again since.
    for (const std::string& path : now) {
      const auto added = watcher_.add({WatchKind::kAbove, path, {}});
      news = news || !above_.contains(path) || added == Watcher::Added::kNew;
    }
    for (const std::string& path : above_) {
      if (!now.contains(path)) watcher_.forget(path);
    }
    above_ = std::move(now);
    std::map<std::string, JobParent> parents;
    for (JobParent& parent : found.parents) {
      if (!measures(parent.node)) continue;
      const std::string path = parent.path;
      const auto added = watcher_.add({WatchKind::kParent, path, {}});
      news = news || !parents_.contains(path) || added == Watcher::Added::kNew;
      parents.emplace(path, std::move(parent));
    }
    for (const auto& [path, parent] : parents_) {
      if (parents.contains(path)) continue;
      if (watcher_.forget(path)) former_parents_.insert_or_assign(path, parent);
    }
    parents_ = std::move(parents);
    if (!news) break;
  }
  parents_stale_ = false;
}

bool Sampler::measures(const std::string& node) const {
  return options_.nodes.empty() || node.empty() ||
         std::find(options_.nodes.begin(), options_.nodes.end(), node) != options_.nodes.end();
}

void Sampler::list_jobs(const JobParent& parent, std::set<std::string>* seen,
                        std::set<std::uint64_t>* left) {
  for (const DirectoryEntry& entry : list_directories(files_, parent.path)) {
    if (seen != nullptr) seen->insert(parent.path + "/" + entry.name);
    if (left != nullptr && left_over_.contains(entry.inode)) left->insert(entry.inode);
    job_appeared(parent, entry.name, entry.inode, false);
  }
}

void Sampler::job_appeared(const JobParent& parent, const std::string& directory,
                           std::uint64_t inode, bool just_now) {
  const auto name = parse_job_name(parent.scheduler, directory);
  if (!name) return;
  const std::string path = parent.path + "/" + directory;
  if (just_now && parent.uid)
    owners_[owner_key(parent.path)].places[parent_of(parent.path)].had_job = true;
  if (inode == 0) {
    Identity identity;
    if (files_.identify(path, identity) == 0) inode = identity.inode;
  }
  if (inode != 0 && left_over_.contains(inode)) {
    if (!has_process(path, 3)) return;
    left_over_.erase(inode);
  }
  const std::string node = parent.node.empty() ? options_.node : parent.node;
  const std::string key = parent.scheduler + "/" + node + "/" + name->id;
  auto found = jobs_.find(key);
  if (found != jobs_.end()) {
    Group& group = found->second->groups.at(index(parent.controller));
    if (group.inode != 0 && inode != 0 && group.inode != inode) {
      // The same id again, in a directory of its own: requeued faster than we looked.
      finish(found, found->second->at_end ? found->second->end_kind : LastRead::kSample);
      found = jobs_.end();
    }
  }
  if (found == jobs_.end()) {
    Tracked& job = begin(parent, *name, just_now);
    adopt(job, parent.controller, path, inode);
    return;
  }
  Tracked& job = *found->second;
  if (!job.groups.at(index(parent.controller)).there) adopt(job, parent.controller, path, inode);
  if (parent.uid && !job.uid_in_path) take_uid(job, *parent.uid);
}

void Sampler::take_uid(Tracked& job, std::uint32_t uid) {
  JobSeen& seen = job.life.state().job;
  seen.uid = uid;
  seen.uid_trusted = true;
  seen.uid_problem.reset();
  job.uid_in_path = true;
}

Sampler::Tracked& Sampler::begin(const JobParent& parent, const JobName& name, bool just_now) {
  const std::string node = parent.node.empty() ? options_.node : parent.node;
  const std::string key = parent.scheduler + "/" + node + "/" + name.id;
  std::optional<Life> life;
  if (const auto known = restored_.find(key); known != restored_.end()) {
    life.emplace(std::move(known->second));
    restored_.erase(known);
    gpus_.restore(life->state().job.key(), std::exchange(life->state().gpus, {}));
  } else {
    JobSeen job;
    job.scheduler = parent.scheduler;
    job.job_id = name.id;
    if (name.sluid) {
      job.sluid = name.id;
      std::string id;
      if (!options_.sluid_dir.empty() &&
          read_text(files_, options_.sluid_dir + "/" + name.id, id, 64) == 0) {
        if (const auto number = whole_number(id)) job.job_id = std::to_string(*number);
      }
    }
    job.node = node;
    job.started_at = clock_.now();
    life.emplace(Life::begin(std::move(job), clock_.steady()));
    ++counts_.started;
  }
  auto tracked = std::make_unique<Tracked>(*std::move(life));
  tracked->name = key;
  if (parent.uid) {
    take_uid(*tracked, *parent.uid);
    ++owners_[owner_key(parent.path)].jobs;
  }
  tracked->just_made = just_now;
  tracked->there_at_start = !just_now && counts_.sweeps == 0;
  tracked->had_process = tracked->life.state().readings > 0;
  return *jobs_.insert_or_assign(key, std::move(tracked)).first->second;
}

// When a job that was there before we looked began: with its oldest process. The time of a control
// group's directory is the one when somebody first looked at it, so it may be later, but never
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

void Sampler::adopt(Tracked& job, Controller controller, const std::string& path,
                    std::uint64_t inode) {
  Group& group = job.groups.at(index(controller));
  if (group.path.empty() && job.uid_in_path && controller != Controller::kUnified) {
    auto& place = owners_[owner_key(parent_of(path))].places[parent_of(parent_of(path))];
    place.had_job = true;
    ++place.jobs;
  }
  group = {path, inode, true};
  job.fresh = true;
  const std::uint64_t known = job.life.state().inodes.at(index(controller));
  // What was restored is of another life of the same id: it ended while nobody looked.
  if (known != 0 && inode != 0 && known != inode) {
    end_old_life(job, clock_.now(), clock_.steady());
    job.life.state().inodes = {};
  }
  job.life.state().inodes.at(index(controller)) = inode;
  job.leaves_known = false;
  // Tasks stand in these; cpuset and devices follow them.
  if (controller == Controller::kUnified || controller == Controller::kMemory ||
      controller == Controller::kCpuacct || controller == Controller::kFreezer) {
    watch_job(job, path);
  }
}

void Sampler::watch_job(Tracked& job, const std::string& path) {
  const auto watch = [&](WatchKind kind, const std::string& what) {
    if (watcher_.add({kind, what, job.name}) != Watcher::Added::kNot) job.watches.push_back(what);
  };
  watch(WatchKind::kJob, path);
  if (job.groups.at(index(Controller::kUnified)).path == path)
    watch(WatchKind::kEvents, path + "/cgroup.events");
  for (const DirectoryEntry& step : list_directories(files_, path)) {
    if (!is_step(step.name)) continue;
    step_seen(job, step.name);
    watch(WatchKind::kStep, path + "/" + step.name);
    if (job.groups.at(index(Controller::kUnified)).path == path)
      watch(WatchKind::kStep, path + "/" + step.name + "/user");
  }
  if (watcher_.exhausted() && said_.insert("watches").second) {
    log_.warning(
        "USAGE_WATCHES_EXHAUSTED",
        "inotify watches are used up, so the end of some jobs is only seen by the sweep; raise "
        "fs.inotify.max_user_watches",
        {{"watches", watcher_.size()}});
  }
}

void Sampler::watch_step(Tracked& job, const std::string& path) {
  if (watcher_.add({WatchKind::kStep, path, job.name}) != Watcher::Added::kNot)
    job.watches.push_back(path);
}

void Sampler::step_seen(Tracked& job, std::string_view step) {
  if (step == "step_batch") {
    job.life.state().job.batch_step = true;
  } else if (step != "step_extern") {
    job.life.state().job.other_steps = true;
  }
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

// `all_groups`: also of those that had none when they were looked at last, such as the ones between
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

// A v2 path does not tell whose job it is; the real uids of its processes do. A set-uid program
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
    // slurmstepd, which is root's, stands elsewhere, but may still be on its way to become the
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

// ---- what inotify tells
// --------------------------------------------------------------------------------------------

void Sampler::owner_changed(const Change& change) {
  const std::string& above = change.where.path;
  const std::string slurm = above.substr(above.rfind('/') + 1);
  if (!change.name.starts_with("uid_") || !slurm.starts_with("slurm") ||
      !measures(slurm.size() > 6 ? slurm.substr(6) : ""))
    return;
  auto& place = owners_[slurm + "/" + change.name].places[above];
  // What was seen in it may have been listed before its creation was read, so that stays.
  if (change.what == Change::What::kRemoved && place.there && !std::exchange(place.had_job, false))
    ++place.without_job;
  place.there = change.what == Change::What::kCreated;
}

// Counts the jobs that came and went with the directories of their user before these could be
// watched.
void Sampler::count_missed() {
  for (auto it = owners_.begin(); it != owners_.end();) {
    const auto& [key, owner] = *it;
    const auto there = [](const auto& place) { return place.second.there; };
    if (std::any_of(owner.places.begin(), owner.places.end(), there)) {
      ++it;
      continue;
    }
    std::int64_t missed = 0;
    for (const auto& [above, place] : owner.places) {
      const std::int64_t seen_elsewhere = std::max<std::int64_t>(owner.jobs - place.jobs, 0);
      missed = std::max(missed, place.without_job - seen_elsewhere);
    }
    counts_.missed += static_cast<std::uint64_t>(missed);
    if (missed > 0 && said_.insert("missed").second) {
      log_.warning("USAGE_JOBS_MISSED",
                   "a job came and went before its control groups could be watched, so it has no "
                   "event; this is logged once, "
                   "`status --json` counts them (missed)",
                   {{"directory", key}});
    }
    it = owners_.erase(it);
  }
}

void Sampler::act(const Change& change, std::set<std::string>& read_now) {
  switch (change.where.kind) {
    case WatchKind::kAbove:
      parents_stale_ = true;
      if (change.what == Change::What::kCreated || change.what == Change::What::kRemoved)
        owner_changed(change);
      return;
    case WatchKind::kParent: {
      if (change.what == Change::What::kEnded) {
        former_parents_.erase(change.where.path);
        return;
      }
      auto parent = parents_.find(change.where.path);
      if (parent == parents_.end()) {
        parent = former_parents_.find(change.where.path);
        if (parent == former_parents_.end()) return;
      }
      const auto name = parse_job_name(parent->second.scheduler, change.name);
      if (!name) return;
      if (change.what == Change::What::kCreated)
        return job_appeared(parent->second, change.name, 0, true);
      const std::string node = parent->second.node.empty() ? options_.node : parent->second.node;
      const auto job = jobs_.find(parent->second.scheduler + "/" + node + "/" + name->id);
      if (job != jobs_.end() && job->second->groups.at(index(parent->second.controller)).there) {
        // It may have come again already, which the next event tells.
        group_removed(*job->second, index(parent->second.controller));
      }
      return;
    }
    case WatchKind::kJob:
    case WatchKind::kStep:
    case WatchKind::kEvents: break;
  }
  const auto found = jobs_.find(change.where.job);
  if (found == jobs_.end()) return;
  Tracked& job = *found->second;
  if (change.where.kind == WatchKind::kEvents) {
    const auto events = text(job, kGroupEvents);
    if (events && value_of(*events, "populated") == 0U && read_now.insert(job.name).second) {
      job.at_end = read(job, Occasion::kEnd);
      job.end_kind = LastRead::kPopulated;
    }
    return;
  }
  job.leaves_known = false;
  const std::string path = change.where.path + "/" + change.name;
  if (change.what == Change::What::kCreated) {
    job.at_end = false;
    if (is_step(change.name)) step_seen(job, change.name);
    if (change.where.kind == WatchKind::kJob && is_step(change.name)) {
      watch_step(job, path);
      if (job.groups.at(index(Controller::kUnified)).path == change.where.path)
        watch_step(job, path + "/user");
    } else if (change.where.kind == WatchKind::kStep && change.name == "user") {
      watch_step(job, path);
    }
    return;
  }
  if (change.what != Change::What::kRemoved || !(is_step(change.name) || is_task(change.name)))
    return;
  if (is_step(change.name)) {
    for (const std::string& gone : {path, path + "/user"}) {
      watcher_.forget(gone);
      std::erase(job.watches, gone);
    }
  }
  // What the extern step, slurmstepd's own, does after the tasks is next to nothing.
  if (path.find("/step_extern") != std::string::npos) return;
  // Each removal is told by each controller; the first that was read is enough.
  const std::string task = path.substr(path.find("/step_"));
  const bool known = job.ended_tasks.erase(task) > 0;
  // One reading for all that this batch of events tells of the job: it is younger than each of
  // them.
  if (!read_now.contains(job.name)) {
    if (!read(job, Occasion::kEnd)) {
      // Nobody knows what it did since it was read last.
      const bool empty =
          job.at_end && job.end_kind == LastRead::kPopulated;  // and read when it was
      if (!known && !empty && is_task(change.name)) job.at_end = false;
      return;
    }
    read_now.insert(job.name);
  }
  job.at_end = true;
  job.end_kind = LastRead::kRemoval;
  if (known || !is_task(change.name)) return;
  if (job.ended_tasks.size() >= 256) job.ended_tasks.clear();
  job.ended_tasks.insert(task);
}

void Sampler::group_removed(Tracked& job, std::size_t controller) {
  Group& group = job.groups.at(controller);
  group.there = false;
  if (!job.vanished) {
    job.vanished = clock_.steady();
    job.vanished_time = clock_.now();
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (index(slot_table().at(i).controller) != controller || job.slots.at(i).fd < 0) continue;
    UniqueFd(std::exchange(job.slots.at(i).fd, -1)).reset();
    --counts_.open_files;
  }
}

// Looks whether its directories still stand; true if none does.
bool Sampler::check_gone(Tracked& job) {
  bool any = false;
  for (std::size_t i = 0; i < kControllers; ++i) {
    Group& group = job.groups.at(i);
    if (!group.there) continue;
    Identity identity;
    const int code = files_.identify(group.path, identity);
    if (says_gone(code) || (code == 0 && group.inode != 0 && identity.inode != group.inode)) {
      group_removed(job, i);
    } else {
      any = true;
    }
  }
  return !any;
}

// ---- when
// ----------------------------------------------------------------------------------------------------------

void Sampler::set_next_early(Tracked& job) noexcept {
  const SteadyTime now = clock_.steady();
  while (job.early < kEarly.size() && job.life.started() + seconds(kEarly.at(job.early)) <= now)
    ++job.early;
  job.next_early = job.early < kEarly.size() ? job.life.started() + seconds(kEarly.at(job.early))
                                             : SteadyTime::max();
}

SteadyTime Sampler::next_due() const noexcept {
  SteadyTime next = next_sweep_;
  for (const auto& [name, job] : jobs_) {
    next = std::min(next, job->next_early);
    if (job->vanished) next = std::min(next, *job->vanished + kLinger);
  }
  return parents_stale_ ? clock_.steady() : next;
}

void Sampler::turn() {
  std::set<std::string> read_now;
  if (watcher_.fd() >= 0) {
    Watcher::Changes changes = watcher_.read();
    for (const Change& change : changes.list) act(change, read_now);
    if (changes.overflow) {
      ++counts_.overflows;
      owners_.clear();
      for (auto& [name, job] : jobs_) job->at_end = false;
      parents_stale_ = true;
      next_sweep_ = clock_.steady();
    }
  }
  if (parents_stale_) {
    refresh_parents();
    for (const auto& [path, parent] : parents_) list_jobs(parent, nullptr, nullptr);
  }
  count_missed();
  const SteadyTime now = clock_.steady();
  if (now >= next_sweep_) {
    sweep();
  } else {
    for (auto& [name, job] : jobs_) {
      // A new job is read at once: its counters are then known from the start, and its steps are
      // found.
      const bool fresh = std::exchange(job->fresh, false) && job->life.state().readings == 0;
      if (!fresh && job->next_early > now) continue;
      const int early = job->early < kEarly.size() ? kEarly.at(job->early) : 0;
      const Reading reading = look(*job, Occasion::kTimed);
      if (reading.any()) {
        ++counts_.readings;
        take_reading(*job, reading, options_.samples && !fresh && early >= kFirstSampled);
      }
      set_next_early(*job);
    }
  }
  finish_vanished();
}

void Sampler::sweep() {
  const SteadyTime began = clock_.steady();
  // Held to the beat, so that the readings of a job are as far apart as they say; after a long stop
  // it begins anew.
  next_sweep_ += options_.interval;
  if (next_sweep_ <= began) next_sweep_ = began + options_.interval;
  refresh_parents();
  std::set<std::string> seen;
  std::set<std::uint64_t> still_left;
  for (const auto& [path, parent] : parents_) list_jobs(parent, &seen, &still_left);
  std::erase_if(left_over_, [&](std::uint64_t inode) { return !still_left.contains(inode); });
  read_prolog_files();
  for (auto& [name, state] : restored_) end_at_last_reading(Life(std::move(state)));
  restored_.clear();
  for (auto& [name, job] : jobs_) {
    for (std::size_t i = 0; i < kControllers; ++i) {
      const Group& group = job->groups.at(i);
      if (group.there && !seen.contains(group.path)) {
        check_gone(*job);
        break;
      }
    }
    // Without watches nobody tells of a new step.
    if (watcher_.fd() < 0 || watcher_.exhausted()) job->leaves_known = false;
    const Reading reading = look(*job, Occasion::kTimed);
    // Nor has a job that is being made a process, and until then it is looked at whenever another
    // group of it appears.
    if (!job->had_process) ++job->empty_sweeps;
    if (reading.any()) {
      ++counts_.readings;
      take_reading(*job, reading, options_.samples);
    }
    set_next_early(*job);
  }
  ++counts_.sweeps;
  counts_.last_sweep_seconds = std::chrono::duration<double>(clock_.steady() - began).count();
  finish_vanished();
}

// ---- the end
// -------------------------------------------------------------------------------------------------------

void Sampler::finish_vanished() {
  const SteadyTime now = clock_.steady();
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const auto next = std::next(it);
    Tracked& job = *it->second;
    if (job.vanished && check_gone(job)) {
      finish(it, job.at_end ? job.end_kind : LastRead::kSample);
    } else if (job.vanished && now >= *job.vanished + kLinger) {
      for (const Group& group : job.groups) {
        if (group.there && group.inode != 0) left_over_.insert(group.inode);
      }
      finish(it, job.at_end ? job.end_kind : LastRead::kSample);
    } else if (job.empty_sweeps > kEmptySweeps) {
      for (const Group& group : job.groups) {
        if (group.there && group.inode != 0) left_over_.insert(group.inode);
      }
      finish(it, LastRead::kPopulated);
    }
    it = next;
  }
}

void Sampler::close_files(Tracked& job) {
  for (Slot& slot : job.slots) {
    if (slot.fd < 0) continue;
    UniqueFd(std::exchange(slot.fd, -1)).reset();
    --counts_.open_files;
  }
}

void Sampler::finish(Jobs::iterator found, LastRead last) {
  Tracked& job = *found->second;
  close_files(job);
  for (const std::string& path : job.watches) watcher_.forget(path);
  const LifeState& state = job.life.state();
  if (job.there_at_start && !job.had_process) {
    // A directory that some job left behind before we were there.
    gpus_.release(state.job.key());
    jobs_.erase(found);
    --counts_.started;
    return;
  }
  SteadyTime ended = job.vanished.value_or(clock_.steady());
  Timestamp ended_time = job.vanished ? job.vanished_time : clock_.now();
  if (state.readings > 0 && last != LastRead::kSample) {
    // Its tasks ended when the last of them was removed; what is left of the directories may take
    // its time.
    ended = std::min(ended, SteadyTime(std::chrono::nanoseconds(state.last_ns)));
    ended_time = std::min(ended_time, state.last_time);
  }
  NodeUsage node = job.life.finish(ended, ended_time, last);
  node.gpus = gpus_.release(state.job.key());
  if (!node.gpus.empty()) node.source.gpu = gpus_.way();
  node.node_cpus = node_cpus_;
  node.node_memory_bytes = node_memory_;
  ++counts_.ended;
  if (node.quality.samples == 0) ++counts_.unread;
  if (last != LastRead::kSample) ++counts_.at_removal;
  output_.ended.push_back(std::move(node));
  jobs_.erase(found);
}

std::vector<LifeState> Sampler::lives() const {
  std::vector<LifeState> all;
  all.reserve(jobs_.size() + restored_.size());
  for (const auto& [name, job] : jobs_) {
    all.push_back(job->life.state());
    if (!gpus_.empty()) all.back().gpus = gpus_.records(job->life.state().job.key());
  }
  for (const auto& [name, state] : restored_) all.push_back(state);
  return all;
}

SamplerCounts Sampler::counts() const {
  SamplerCounts counts = counts_;
  counts.jobs = jobs_.size();
  return counts;
}

}  // namespace scriptorium::usage

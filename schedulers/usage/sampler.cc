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
  add_ended(std::move(node));
}

void Sampler::add_ended(NodeUsage node) {
  node.gpus = gpus_.release(node.job.key());
  if (!node.gpus.empty()) node.source.gpu = gpus_.method();
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
  // What appears between listing and watching is found by the next round, as the watch is there by
  // then.
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
  if (just_now && parent.uid) missed_.job_listed(parent.path);
  if (inode == 0) {
    Identity identity;
    if (files_.identify(path, identity) == 0) inode = identity.inode;
  }
  if (inode != 0 && left_over_.contains(inode)) {
    if (!has_process(path, 3)) return;
    left_over_.erase(inode);
  }
  auto found = jobs_.find(job_key(parent, *name));
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

const std::string& Sampler::node_of(const JobParent& parent) const {
  return parent.node.empty() ? options_.node : parent.node;
}

std::string Sampler::job_key(const JobParent& parent, const JobName& name) const {
  return parent.scheduler + "/" + node_of(parent) + "/" + name.id;
}

void Sampler::take_uid(Tracked& job, std::uint32_t uid) {
  JobSeen& seen = job.life.state().job;
  seen.uid = uid;
  seen.uid_trusted = true;
  seen.uid_problem.reset();
  job.uid_in_path = true;
}

Sampler::Tracked& Sampler::begin(const JobParent& parent, const JobName& name, bool just_now) {
  const std::string key = job_key(parent, name);
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
    job.node = node_of(parent);
    job.started_at = clock_.now();
    life.emplace(Life::begin(std::move(job), clock_.steady()));
    ++counts_.started;
  }
  auto tracked = std::make_unique<Tracked>(*std::move(life));
  tracked->name = key;
  if (parent.uid) {
    take_uid(*tracked, *parent.uid);
    missed_.job_began(parent.path);
  }
  tracked->just_made = just_now;
  tracked->there_at_start = !just_now && counts_.sweeps == 0;
  tracked->had_process = tracked->life.state().readings > 0;
  return *jobs_.insert_or_assign(key, std::move(tracked)).first->second;
}

void Sampler::adopt(Tracked& job, Controller controller, const std::string& path,
                    std::uint64_t inode) {
  Group& group = job.groups.at(index(controller));
  if (group.path.empty() && job.uid_in_path && controller != Controller::kUnified) {
    missed_.job_seen(parent_of(path));
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
  // Tasks are in these; cpuset and devices follow them.
  if (controller == Controller::kUnified || controller == Controller::kMemory ||
      controller == Controller::kCpuacct || controller == Controller::kFreezer) {
    watch_job(job, path);
  }
}

void Sampler::watch(Tracked& job, WatchKind kind, const std::string& path) {
  if (watcher_.add({kind, path, job.name}) != Watcher::Added::kNot) job.watches.push_back(path);
}

void Sampler::watch_job(Tracked& job, const std::string& path) {
  const bool unified = job.groups.at(index(Controller::kUnified)).path == path;
  watch(job, WatchKind::kJob, path);
  if (unified) watch(job, WatchKind::kEvents, path + "/cgroup.events");
  for (const DirectoryEntry& step : list_directories(files_, path)) {
    if (!is_step(step.name)) continue;
    step_seen(job, step.name);
    watch(job, WatchKind::kStep, path + "/" + step.name);
    if (unified) watch(job, WatchKind::kStep, path + "/" + step.name + "/user");
  }
  if (watcher_.exhausted() && logged_.allows("watches", clock_.steady())) {
    log_.warning(
        "USAGE_WATCHES_EXHAUSTED",
        "inotify watches are used up, so the end of some jobs is only seen by the sweep; raise "
        "fs.inotify.max_user_watches",
        {{"watches", watcher_.size()}});
  }
}

void Sampler::step_seen(Tracked& job, std::string_view step) {
  if (step == "step_batch") {
    job.life.state().job.batch_step = true;
  } else if (step != "step_extern") {
    job.life.state().job.other_steps = true;
  }
}

// ---- when

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

void Sampler::step() {
  std::set<std::string> read_now;
  if (watcher_.fd() >= 0) {
    Watcher::Changes changes = watcher_.read();
    for (const Change& change : changes.list) act(change, read_now);
    if (changes.overflow) {
      ++counts_.overflows;
      missed_.clear();
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
      const Reading reading = measure(*job, Occasion::kTimed);
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
  // it starts again.
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
    // Without watches nothing reports a new step.
    if (watcher_.fd() < 0 || watcher_.exhausted()) job->leaves_known = false;
    const Reading reading = measure(*job, Occasion::kTimed);
    // A job that is still being set up has no process yet; until it has one, it is read whenever
    // another group of it appears.
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

void Sampler::finish_vanished() {
  const SteadyTime now = clock_.steady();
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const auto next = std::next(it);
    Tracked& job = *it->second;
    const bool gone = job.vanished && check_gone(job);
    if (gone || (job.vanished && now >= *job.vanished + kLinger)) {
      if (!gone) leave_over(job);
      finish(it, job.at_end ? job.end_kind : LastRead::kSample);
    } else if (job.empty_sweeps > kEmptySweeps) {
      leave_over(job);
      finish(it, LastRead::kPopulated);
    }
    it = next;
  }
}

// Its directories that are still there are no job from now on.
void Sampler::leave_over(const Tracked& job) {
  for (const Group& group : job.groups) {
    if (group.there && group.inode != 0) left_over_.insert(group.inode);
  }
}

void Sampler::close_files(Tracked& job) {
  for (Slot& slot : job.slots) close_file(slot);
}

void Sampler::close_file(Slot& slot) {
  if (slot.fd < 0) return;
  UniqueFd(std::exchange(slot.fd, -1)).reset();
  --counts_.open_files;
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
  if (node.quality.samples == 0) ++counts_.unread;
  if (last != LastRead::kSample) ++counts_.at_removal;
  add_ended(std::move(node));
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

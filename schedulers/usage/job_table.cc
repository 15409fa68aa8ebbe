#include "schedulers/usage/job_table.h"

#include <algorithm>
#include <array>

#include "core/base/path.h"

namespace scriptorium::usage {
namespace {

using std::chrono::seconds;

// Readings of a young job, as seconds since its start: a sweep alone would hardly see a job that is
// shorter than the interval.
constexpr std::array kEarly = {1, 2, 5, 10, 20, 30};
// From this one on they are worth a usage.sample.
constexpr int kFirstSampled = 10;
// How long the last control group of a job may outlast the first one that is gone.
constexpr seconds kLinger{5};
// Without a process for more readings than this, what is left is an empty directory, not a job.
constexpr std::uint32_t kEmptyReadings = 2;
constexpr std::size_t kMostEndedTasks = 256;

}  // namespace

// ---- one job

void TrackedJob::began_before(std::chrono::nanoseconds age, Moment now) {
  const auto inodes = life.state().inodes;
  StepTable steps = std::move(life.state().steps);
  JobSeen began = seen();
  began.started_at = Timestamp{now.time.nanoseconds - age.count()};
  life = Life::begin(std::move(began), now.at - age);
  life.state().inodes = inodes;
  life.state().steps = std::move(steps);
}

void TrackedJob::group_removed(Controller controller, Moment now) {
  groups.of(controller).there = false;
  if (vanishing()) return;
  stage = stage == Stage::kListed ? Stage::kClearing : Stage::kVanishing;
  vanished = now;
}

void TrackedJob::directory_made(std::string_view name) {
  last_read = LastRead::kSample;
  if (is_step(name)) seen().add_step(name);
}

void TrackedJob::task_removed(const std::string& task, bool read) {
  const bool is_whole_step = !is_task(std::string_view(task).substr(task.rfind('/') + 1));
  // Each controller notifies of each removal; one reading for all of them is enough.
  const bool was_read = ended_tasks.erase(task) > 0;
  if (!read) {
    // What it did since the last reading is not known, unless that found it without a process.
    if (!was_read && last_read != LastRead::kPopulated && !is_whole_step)
      last_read = LastRead::kSample;
    return;
  }
  last_read = LastRead::kRemoval;
  if (was_read || is_whole_step) return;
  if (ended_tasks.size() >= kMostEndedTasks) ended_tasks.clear();
  ended_tasks.insert(task);
}

void TrackedJob::emptied(bool read) { last_read = read ? LastRead::kPopulated : LastRead::kSample; }

void TrackedJob::count_processes(bool any, bool sweep) noexcept {
  if (any) {
    empty_readings = 0;
    if (stage < Stage::kRunning) stage = Stage::kRunning;
    if (stage == Stage::kClearing) stage = Stage::kVanishing;
  } else if (sweep || stage == Stage::kRunning || stage == Stage::kVanishing) {
    // A job that is still being set up has no process yet; until it has one, its early readings do
    // not count.
    ++empty_readings;
  }
}

void TrackedJob::schedule(SteadyTime now) noexcept {
  const auto next = [&] { return life.started() + seconds(kEarly.at(early_readings)); };
  while (early_readings < kEarly.size() && next() <= now) ++early_readings;
  next_reading = early_readings < kEarly.size() ? next() : SteadyTime::max();
}

bool TrackedJob::sample_due() const noexcept {
  return next_reading != SteadyTime::min() && early_readings < kEarly.size() &&
         kEarly.at(early_readings) >= kFirstSampled;
}

// ---- all jobs

std::string JobTable::key_of(const JobParent& parent, const JobName& name) {
  return parent.scheduler + "/" + parent.node + "/" + name.id;
}

TrackedJob* JobTable::find(const std::string& key) {
  const auto found = jobs_.find(key);
  return found == jobs_.end() ? nullptr : &found->second;
}

void JobTable::restore(std::vector<LifeState> lives, bool same_boot) {
  for (LifeState& state : lives) {
    if (!same_boot) {
      // The machine went down, and the job with it, some time after its last reading.
      end_at_last_reading(Life(std::move(state)));
      continue;
    }
    const JobSeen& job = state.job;
    std::string key = job.scheduler + "/" + job.node + "/" + job.sluid.value_or(job.job_id);
    restored_.insert_or_assign(std::move(key), std::move(state));
  }
}

void JobTable::end_restored() {
  for (auto& [key, state] : restored_) end_at_last_reading(Life(std::move(state)));
  restored_.clear();
}

// ---- what was seen

JobTable::Appeared JobTable::appeared(const JobParent& parent, const JobName& name,
                                      std::uint64_t inode, Seen seen, Moment now,
                                      const std::string& path) {
  left_over_.erase(inode);
  const std::string key = key_of(parent, name);
  auto found = jobs_.find(key);
  if (found != jobs_.end()) {
    const ControlGroup& group = found->second.groups.of(parent.controller);
    if (group.inode != 0 && inode != 0 && group.inode != inode) {
      // The same id again, in a directory of its own: requeued before its end was seen.
      end(found, found->second.last_read, now);
      found = jobs_.end();
    }
  }
  if (found != jobs_.end()) {
    TrackedJob& job = found->second;
    const bool new_group = !job.groups.of(parent.controller).there;
    if (new_group) adopt(job, parent, inode, now, path);
    return {.job = job, .new_group = new_group};
  }
  const auto restored = restored_.find(key);
  const bool continues = restored != restored_.end();
  Life life = continues ? Life(std::move(restored->second)) : begin(parent, name, now);
  if (continues) restored_.erase(restored);
  Stage stage = seen == Seen::kAtStart ? Stage::kListed : Stage::kSettingUp;
  if (life.state().readings > 0) stage = Stage::kRunning;
  if (parent.uid) missed_.job_began(parent.path);
  TrackedJob& job = jobs_.try_emplace(key, key, std::move(life), stage).first->second;
  adopt(job, parent, inode, now, path);
  return {job, true, continues, true};
}

Life JobTable::begin(const JobParent& parent, const JobName& name, Moment now) {
  JobSeen job;
  job.scheduler = parent.scheduler;
  job.job_id = name.id;
  if (name.sluid) job.sluid = name.id;
  job.node = parent.node;
  job.started_at = now.time;
  ++counts_.started;
  return Life::begin(std::move(job), now.at);
}

void JobTable::adopt(TrackedJob& job, const JobParent& parent, std::uint64_t inode, Moment now,
                     const std::string& path) {
  if (parent.uid && !std::exchange(job.groups.owner_in_path, true)) {
    job.seen().uid = parent.uid;
    job.seen().uid_trusted = true;
    job.seen().uid_problem.reset();
  }
  ControlGroup& group = job.groups.of(parent.controller);
  if (group.path.empty() && job.groups.owner_in_path && parent.controller != Controller::kUnified)
    missed_.job_seen(parent_of(path));
  group = {path, inode, true};
  const auto index = static_cast<std::size_t>(parent.controller);
  const std::uint64_t before = job.life.state().inodes.at(index);
  // What was restored is of another life of the same id: it ended before our start.
  if (before != 0 && inode != 0 && before != inode) {
    begin_next_life(job, now);
    job.life.state().inodes = {};
  }
  job.life.state().inodes.at(index) = inode;
  // Read at once, its counters are known from the start.
  if (job.life.state().readings == 0) job.next_reading = SteadyTime::min();
}

void JobTable::overflowed() {
  missed_.clear();
  for (auto& [key, job] : jobs_) job.last_read = LastRead::kSample;
}

// ---- readings

bool JobTable::add(TrackedJob& job, const Reading& reading) {
  ++counts_.readings;
  const bool reset = job.life.is_reset(reading);
  if (reset) begin_next_life(job, {reading.at, reading.time});
  job.life.add(reading, std::chrono::duration<double>(interval_).count());
  return reset;
}

// Other groups than before, under the same names: what was before is a life of its own.
void JobTable::begin_next_life(TrackedJob& job, Moment now) {
  const auto inodes = job.life.state().inodes;
  JobSeen seen = job.seen();
  end_at_last_reading(job.life);
  seen.batch_step = false;
  seen.other_steps = false;
  seen.restarts.reset();
  seen.started_at = now.time;
  job.life = Life::begin(std::move(seen), now.at);
  job.life.state().inodes = inodes;
  job.last_read = LastRead::kSample;
  ++counts_.started;
}

SteadyTime JobTable::next_due() const noexcept {
  SteadyTime next = SteadyTime::max();
  for (const auto& [key, job] : jobs_) {
    next = std::min(next, job.next_reading);
    if (job.vanishing()) next = std::min(next, job.vanished.at + kLinger);
  }
  return next;
}

// ---- the end

std::vector<std::string> JobTable::end_due(Moment now) {
  std::vector<std::string> keys;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const auto found = it++;
    TrackedJob& job = found->second;
    const bool gone = std::none_of(job.groups.begin(), job.groups.end(),
                                   [](const ControlGroup& group) { return group.there; });
    const bool lingered = job.vanishing() && now.at >= job.vanished.at + kLinger;
    const bool empty = job.empty_readings > kEmptyReadings;
    if (!gone && !lingered && !empty) continue;
    // What is still there is not a job any more.
    for (const ControlGroup& group : job.groups) {
      if (group.there && group.inode != 0) left_over_.insert(group.inode);
    }
    keys.push_back(job.key);
    end(found, gone || lingered ? job.last_read : LastRead::kPopulated, now);
  }
  return keys;
}

void JobTable::end(Jobs::iterator found, LastRead last, Moment now) {
  TrackedJob& job = found->second;
  if (job.stage == Stage::kListed || job.stage == Stage::kClearing) {
    output_.discarded.push_back(job.seen().key());
    --counts_.started;
    jobs_.erase(found);
    return;
  }
  Moment ended = job.stage == Stage::kVanishing ? job.vanished : now;
  const LifeState& state = job.life.state();
  if (state.readings > 0 && last != LastRead::kSample) {
    // Its tasks ended when the last of them was removed; what is left of the directories may take
    // its time.
    ended.at = std::min(ended.at, SteadyTime(std::chrono::nanoseconds(state.last_ns)));
    ended.time = std::min(ended.time, state.last_time);
  }
  if (state.readings == 0) ++counts_.unread;
  if (last != LastRead::kSample) ++counts_.at_removal;
  add_ended(job.life.finish(ended.at, ended.time, last));
  jobs_.erase(found);
}

// Its end was not seen: it lies behind its last reading, but how far is not known here.
void JobTable::end_at_last_reading(const Life& life) {
  const LifeState& state = life.state();
  const std::int64_t last_ns = std::max(state.last_ns, state.started_ns);
  const Timestamp last = state.readings > 0 ? state.last_time : state.job.started_at;
  add_ended(life.finish(SteadyTime(std::chrono::nanoseconds(last_ns)), last, LastRead::kSample));
}

void JobTable::add_ended(NodeUsage node) {
  output_.ended.push_back(std::move(node));
  ++counts_.ended;
}

std::vector<LifeState> JobTable::lives() const {
  std::vector<LifeState> all;
  all.reserve(jobs_.size() + restored_.size());
  for (const auto& [key, job] : jobs_) all.push_back(job.life.state());
  for (const auto& [key, state] : restored_) all.push_back(state);
  return all;
}

}  // namespace scriptorium::usage

#include "schedulers/usage/sampler.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "core/base/path.h"
#include "schedulers/usage/program_reader.h"

namespace scriptorium::usage {
namespace {

// What changes rarely is read at each of the first readings and then at every eighth.
constexpr std::uint64_t kRareFirst = 4;
constexpr std::uint64_t kRareEach = 8;

std::optional<std::uint64_t> memory_bytes(Files& files, const std::string& proc) {
  std::string text;
  if (read_text(files, proc + "/meminfo", text) < 0) return std::nullopt;
  const std::size_t at = text.find("MemTotal:");
  if (at == std::string::npos) return std::nullopt;
  std::string_view line = std::string_view(text).substr(at + 9);
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
  const auto kilobytes = whole_number(line.substr(0, line.find(' ')));
  return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
}

// The step that a path below a job's directory is in.
std::string_view step_of(std::string_view path) {
  return step_name(path.substr(path.find("/step_") + 1));
}

}  // namespace

Sampler::Readers::Readers(const Sampler& owner, CounterFiles& files)
    : v1(files),
      v2(files, owner.options_.root),
      processes(owner.process_options_, owner.files_, owner.log_, owner.clock_),
      steps(owner.files_, owner.clock_) {}

ReadScope Sampler::Readers::scope(TrackedJob& job, bool at_end, Moment now) const {
  const bool each = timed_readings % kRareEach == 0;
  const bool rare = at_end ? !job.life.state().cpu.allocated : timed_readings < kRareFirst || each;
  return {.groups = job.groups,
          .job = job.seen(),
          .steps = job.life.state().steps,
          .now = now,
          .at_end = at_end,
          .rare = rare,
          .retry = each};
}

Reading Sampler::Readers::read_counters(const ReadScope& scope, const Clock& clock) {
  Reading reading;
  v1.read(scope, processes.groups(), reading);
  v2.read(scope, reading);
  reading.at = clock.steady();
  reading.time = clock.now();
  return reading;
}

void Sampler::Readers::group_removed(Controller controller) {
  v1.group_removed(controller);
  v2.group_removed(controller);
}

void Sampler::Readers::begin_life() {
  v1.begin_life();
  processes.begin_life();
}

Sampler::Sampler(SamplerOptions options, Files& files, GpuMonitor& gpus, Logger& log,
                 const Clock& clock)
    : options_(std::move(options)),
      process_options_{options_.proc, options_.process_io},
      files_(files),
      gpus_(gpus),
      log_(log),
      clock_(clock),
      parents_(options_.root, options_.node, options_.nodes, files, watcher_),
      table_(options_.interval, counts_),
      counter_files_(files, options_.kept_files, log, clock),
      claims_(options_.gpu_jobs_dir, files, gpus),
      next_sweep_(clock.steady()),
      node_memory_(memory_bytes(files, options_.proc)) {
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
}

void Sampler::restore(std::vector<LifeState> lives, bool same_boot) {
  for (LifeState& life : lives) gpus_.restore(life.job.key(), std::exchange(life.gpus, {}));
  table_.restore(std::move(lives), same_boot);
  end_jobs();
}

SteadyTime Sampler::next_due() const noexcept {
  return parents_.stale() ? clock_.steady() : std::min(next_sweep_, table_.next_due());
}

void Sampler::step() {
  if (watcher_.fd() >= 0) {
    const Watcher::Changes changes = watcher_.read();
    std::set<std::string> read_now;
    for (const Change& change : changes.list) act(change, read_now);
    if (changes.overflow) {
      ++counts_.overflows;
      table_.overflowed();
      parents_.set_stale();
      next_sweep_ = clock_.steady();
    }
  }
  if (parents_.stale()) list_jobs();
  report_missed();
  const SteadyTime time = clock_.steady();
  if (time >= next_sweep_) return sweep();
  for (auto& [key, job] : table_.jobs()) {
    if (job.next_reading <= time) read_timed(job, false, options_.samples && job.sample_due());
  }
  end_jobs();
}

void Sampler::sweep() {
  const SteadyTime began = clock_.steady();
  // Held to the beat, so that the readings of a job are as far apart as they say; after a long stop
  // it starts again.
  next_sweep_ += options_.interval;
  if (next_sweep_ <= began) next_sweep_ = began + options_.interval;
  Listing listing = list_jobs();
  table_.keep_left_over(std::move(listing.left_over));
  claims_.read_prolog_files();
  table_.end_restored();
  // Without watches nothing reports a new step.
  const bool unwatched = watcher_.fd() < 0 || watcher_.exhausted();
  for (auto& [key, job] : table_.jobs()) {
    if (std::ranges::any_of(job.groups, [&](const ControlGroup& group) {
          return group.there && !listing.paths.contains(group.path);
        }))
      check_groups(job);
    if (unwatched) readers_.at(key).processes.groups().forget();
    read_timed(job, true, options_.samples);
  }
  ++counts_.sweeps;
  counts_.last_sweep_seconds = std::chrono::duration<double>(clock_.steady() - began).count();
  end_jobs();
}

// ---- which jobs there are

Sampler::Listing Sampler::list_jobs() {
  parents_.refresh();
  Listing listing;
  std::vector<std::string> began;
  const Moment time = now();
  const auto seen = counts_.sweeps == 0 ? JobTable::Seen::kAtStart : JobTable::Seen::kListed;
  for (const auto& [path, parent] : parents_.by_path()) {
    for (const DirectoryEntry& entry : list_directories(files_, path)) {
      listing.paths.insert(path + "/" + entry.name);
      if (table_.is_left_over(entry.inode)) listing.left_over.insert(entry.inode);
      if (const TrackedJob* job = appeared(parent, entry.name, entry.inode, seen, time))
        began.push_back(job->key);
    }
  }
  for (const std::string& key : began) {
    TrackedJob* job = table_.find(key);
    if (job == nullptr || job->life.state().readings > 0) continue;
    Readers& readers = readers_.at(key);
    const double age = readers.processes.age_seconds(scope(*job, false));
    const std::chrono::nanoseconds back(static_cast<std::int64_t>(age * 1e9));
    job->began_before(back, time);
  }
  return listing;
}

TrackedJob* Sampler::appeared(const JobParent& parent, const std::string& directory,
                              std::uint64_t inode, JobTable::Seen seen, Moment time) {
  const auto name = parse_job_name(parent.scheduler, directory);
  if (!name) return nullptr;
  const auto& only = options_.only;
  if (only && (only->scheduler != parent.scheduler || only->name != directory)) return nullptr;
  const std::string path = parent.path + "/" + directory;
  if (seen == JobTable::Seen::kMade && parent.uid) table_.missed().job_listed(parent.path);
  if (inode == 0) {
    Identity identity;
    if (files_.identify(path, identity) == 0) inode = identity.inode;
  }
  if (table_.is_left_over(inode) && !has_process(files_, path, 3)) return nullptr;
  const auto [job, began, restored, new_group] =
      table_.appeared(parent, *name, inode, seen, time, path);
  if (began) {
    forget(job.key);  // another job of the same id
    readers_.try_emplace(job.key, *this, counter_files_);
    std::string id;
    if (name->sluid && !restored && !options_.sluid_dir.empty() &&
        read_text(files_, options_.sluid_dir + "/" + name->id, id, 64) == 0) {
      if (const auto number = whole_number(id)) job.seen().job_id = std::to_string(*number);
    }
  }
  if (new_group) watch_group(job, parent.controller, path);
  return began ? &job : nullptr;
}

void Sampler::watch(TrackedJob& job, WatchKind kind, const std::string& path) {
  if (watcher_.add({kind, path, job.key}) != Watcher::Added::kNot)
    readers_.at(job.key).watches.push_back(path);
}

// What a v2 step's tasks are in.
void Sampler::watch_user(TrackedJob& job, const std::string& path) {
  watch(job, WatchKind::kStep, path);
  if (step_of(path) != "extern") watch(job, WatchKind::kEvents, path + "/cgroup.events");
}

void Sampler::watch_group(TrackedJob& job, Controller controller, const std::string& path) {
  readers_.at(job.key).processes.groups().forget();
  // Tasks are in these; cpuset and devices follow them.
  const bool unified = controller == Controller::kUnified;
  if (!unified && controller != Controller::kMemory && controller != Controller::kCpuacct &&
      controller != Controller::kFreezer)
    return;
  watch(job, WatchKind::kJob, path);
  if (unified) watch(job, WatchKind::kEvents, path + "/cgroup.events");
  for (const DirectoryEntry& step : list_directories(files_, path)) {
    if (!is_step(step.name)) continue;
    step_listed(files_, path + "/" + step.name, step.name, scope(job, false));
    watch(job, WatchKind::kStep, path + "/" + step.name);
    if (unified) watch_user(job, path + "/" + step.name + "/user");
  }
  if (watcher_.exhausted() && logged_.allows("watches", clock_.steady())) {
    log_.warning(
        "USAGE_WATCHES_EXHAUSTED",
        "inotify watches are used up, so the end of some jobs is only seen by the sweep; raise "
        "fs.inotify.max_user_watches",
        {{"watches", watcher_.size()}});
  }
}

// ---- inotify's notifications

void Sampler::act(const Change& change, std::set<std::string>& read_now) {
  const WatchKind kind = change.where.kind;
  if (kind == WatchKind::kAbove) return act_on_owner(change);
  if (kind == WatchKind::kParent) return act_on_parent(change);
  TrackedJob* job = table_.find(change.where.job);
  if (job == nullptr) return;
  Readers& readers = readers_.at(job->key);
  if (kind == WatchKind::kEvents && change.where.path.ends_with("/user/cgroup.events")) {
    return readers.steps.read_if_empty(scope(*job, true), step_of(change.where.path));
  }
  if (kind == WatchKind::kEvents) {
    if (!readers.v2.is_empty(scope(*job, true)) || !read_now.insert(job->key).second) return;
    return job->emptied(read_at_end(*job));
  }
  readers.processes.groups().forget();
  if (change.what == Change::What::kRemoved && (is_step(change.name) || is_task(change.name)))
    return act_on_removed_task(*job, change, read_now);
  if (change.what != Change::What::kCreated) return;
  job->directory_made(change.name);
  const std::string path = change.where.path + "/" + change.name;
  if (kind == WatchKind::kJob && is_step(change.name)) {
    job->life.state().steps.appeared(step_name(change.name), now());
    watch(*job, WatchKind::kStep, path);
    if (job->groups.of(Controller::kUnified).path == change.where.path)
      watch_user(*job, path + "/user");
  } else if (kind == WatchKind::kStep && change.name == "user") {
    watch_user(*job, path);
  }
}

// A directory of a user's jobs below a v1 controller, among others.
void Sampler::act_on_owner(const Change& change) {
  parents_.set_stale();
  const std::string& above = change.where.path;
  const std::string slurm = above.substr(above.rfind('/') + 1);
  if (!change.name.starts_with("uid_") || !slurm.starts_with("slurm") ||
      !parents_.measures(slurm.size() > 6 ? slurm.substr(6) : ""))
    return;
  if (change.what == Change::What::kCreated) table_.missed().owner_appeared(above, change.name);
  if (change.what == Change::What::kRemoved) table_.missed().owner_removed(above, change.name);
}

void Sampler::act_on_parent(const Change& change) {
  if (change.what == Change::What::kEnded) return parents_.ended(change.where.path);
  const JobParent* parent = parents_.find(change.where.path);
  const auto name =
      parent != nullptr ? parse_job_name(parent->scheduler, change.name) : std::optional<JobName>();
  if (!name) return;
  if (change.what == Change::What::kCreated) {
    appeared(*parent, change.name, 0, JobTable::Seen::kMade, now());
    return;
  }
  // It may have come again already, which the next notification says.
  TrackedJob* job = table_.find(JobTable::key_of(*parent, *name));
  if (job != nullptr && job->groups.of(parent->controller).there)
    remove_group(*job, parent->controller);
}

void Sampler::act_on_removed_task(TrackedJob& job, const Change& change,
                                  std::set<std::string>& read_now) {
  const std::string path = change.where.path + "/" + change.name;
  const std::string_view step = step_of(path);
  Readers& readers = readers_.at(job.key);
  StepTable& steps = job.life.state().steps;
  const bool read_step = read_now.insert(job.key + "/step_" + std::string(step)).second;
  if (read_step) readers.steps.read_at_end(scope(job, true), step);
  if (is_step(change.name)) {
    steps.removed(step, now(), true);
    take_step_gpus(job);
    for (const std::string& removed : {path, path + "/user", path + "/user/cgroup.events"}) {
      watcher_.forget(removed);
      std::erase(readers.watches, removed);
    }
  }
  // What the extern step, slurmstepd's own, does after the tasks is next to nothing.
  if (step == "extern") return;
  // One reading for all that this batch of events says of the job: it is younger than each of them.
  const bool read = read_now.contains(job.key) || read_at_end(job);
  if (read) read_now.insert(job.key);
  if (read_step) StepReader::count_kills(scope(job, true), readers.v1, step);
  job.task_removed(path.substr(path.find("/step_")), read);
}

void Sampler::report_missed() {
  const auto [missed, directory] = table_.missed().take();
  counts_.missed += missed;
  if (missed == 0 || !logged_.allows("missed", clock_.steady())) return;
  log_.warning("USAGE_JOBS_MISSED",
               "a job came and went before its control groups could be watched, so it has no "
               "event; this is logged once, `status --json` counts them (missed)",
               {{"directory", directory}});
}

// ---- readings

// There is no time to lose, so only the counters are read.
bool Sampler::read_at_end(TrackedJob& job) {
  Readers& readers = readers_.at(job.key);
  const Reading reading = readers.read_counters(scope(job, true), clock_);
  if (!reading.any()) return false;
  if (table_.add(job, reading)) readers.begin_life();
  return true;
}

void Sampler::read_timed(TrackedJob& job, bool sweep, bool sample) {
  Readers& readers = readers_.at(job.key);
  const ReadScope of_job = scope(job, false);
  Reading reading = readers.read_counters(of_job, clock_);
  const bool any_process = readers.processes.read(of_job, logged_, reading);
  if (!gpus_.empty())
    claims_.claim(job.seen(), readers.v1.devices(of_job), readers.processes.gpus());
  count_step_gpus(job);
  ++readers.timed_readings;
  job.count_processes(any_process, sweep);
  if (reading.any()) {
    if (table_.add(job, reading)) readers.begin_life();
    if (sample) add_sample(job, reading);
  }
  readers.steps.read_timed(of_job, readers.v1, job.life.state().peak_swap.value_or(0) > 0);
  take_step_gpus(job);
  const std::vector<std::uint32_t>& own = readers.processes.own();
  if (!own.empty()) {
    read_programs(files_, options_.proc, own, reading.at, options_.executables, job.life.state());
  }
  job.schedule(clock_.steady());
}

void Sampler::count_step_gpus(TrackedJob& job) {
  const std::string life = job.seen().key();
  if (!gpus_.is_held_by(life)) return;
  StepReader& reader = readers_.at(job.key).steps;
  StepTable& steps = job.life.state().steps;
  for (const StepTable::Step& step : steps.state().steps) {
    if (!step.runs || step.gpus != StepTable::Step::Gpus::kNotYet) continue;
    const auto devices = reader.devices(scope(job, false), step.name);
    const auto minors = devices ? GpuClaims::gpu_minors(*devices) : std::nullopt;
    // Changes the step in its place.
    if (gpus_.claim_step(life, step.name, minors)) steps.count_gpus(step.name);
  }
}

void Sampler::take_step_gpus(TrackedJob& job) {
  if (gpus_.empty()) return;
  StepTable& steps = job.life.state().steps;
  for (const StepTable::Step& step : steps.state().steps) {
    if (step.gpus == StepTable::Step::Gpus::kCounted && !step.runs)
      steps.take_gpus(step.name, step_gpu(gpus_.release_step(job.seen().key(), step.name)));
  }
}

void Sampler::add_sample(TrackedJob& job, const Reading& reading) {
  UsageSample sample = job.life.sample(reading);
  sample.gpus = gpus_.now(sample.job.key());
  if (!sample.gpus.empty()) sample.source.gpu = gpus_.method();
  output_.samples.push_back(std::move(sample));
}

// ---- the end

void Sampler::check_groups(TrackedJob& job) {
  for (std::size_t i = 0; i < kControllers; ++i) {
    const ControlGroup& group = job.groups.at(i);
    if (!group.there) continue;
    Identity identity;
    const int code = files_.identify(group.path, identity);
    if (says_gone(code) || (code == 0 && group.inode != 0 && identity.inode != group.inode))
      remove_group(job, static_cast<Controller>(i));
  }
}

void Sampler::remove_group(TrackedJob& job, Controller controller) {
  job.group_removed(controller, now());
  readers_.at(job.key).group_removed(controller);
}

void Sampler::end_jobs() {
  for (auto& [key, job] : table_.jobs()) {
    if (!job.vanishing()) continue;
    check_groups(job);
    learn_executables(options_.executables, job.life.state());
  }
  for (const std::string& key : table_.end_due(now())) forget(key);
  JobTable::Output output = table_.take();
  for (const std::string& life : output.discarded) gpus_.release(life);
  for (NodeUsage& node : output.ended) {
    // Those whose end nobody saw ended with their job.
    for (StepUse& step : node.steps.steps) {
      if (step.gpu.count == 0) step.gpu = step_gpu(gpus_.release_step(node.job.key(), step.name));
    }
    node.gpus = gpus_.release(node.job.key());
    add_node_facts(node);
    output_.ended.push_back(std::move(node));
  }
}

void Sampler::add_node_facts(NodeUsage& node) const {
  if (!node.gpus.empty()) node.source.gpu = gpus_.method();
  node.node_cpus = node_cpus_;
  node.node_memory_bytes = node_memory_;
}

void Sampler::forget(const std::string& key) {
  const auto found = readers_.find(key);
  if (found == readers_.end()) return;
  for (const std::string& path : found->second.watches) watcher_.forget(path);
  readers_.erase(found);
}

std::vector<LifeState> Sampler::lives() const {
  std::vector<LifeState> all = table_.lives();
  if (gpus_.empty()) return all;
  for (LifeState& life : all) life.gpus = gpus_.records(life.job.key());
  return all;
}

std::vector<NodeUsage> Sampler::so_far() const {
  std::vector<NodeUsage> all;
  for (const auto& [key, job] : table_.jobs()) {
    const LifeState& state = job.life.state();
    if (state.readings == 0) continue;
    NodeUsage& node = all.emplace_back(job.life.finish(
        SteadyTime(std::chrono::nanoseconds(state.last_ns)), state.last_time, LastRead::kRunning));
    for (const GpuRecord& gpu : gpus_.records(node.job.key()))
      node.gpus.push_back(GpuStatistics(gpu).summary());
    add_node_facts(node);
  }
  return all;
}

UsageCounts Sampler::counts() const {
  UsageCounts counts = counts_;
  counts.unreadable = counter_files_.unreadable();
  counts.jobs = table_.jobs().size();
  counts.open_files = counter_files_.kept();
  return counts;
}

}  // namespace scriptorium::usage

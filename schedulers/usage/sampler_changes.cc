#include <utility>

#include "schedulers/usage/sampler.h"
#include "schedulers/usage/sampler_slots.h"

// What the sampler does about inotify's notifications.
namespace scriptorium::usage {

void Sampler::act(const Change& change, std::set<std::string>& read_now) {
  switch (change.where.kind) {
    case WatchKind::kAbove: return act_on_owner(change);
    case WatchKind::kParent: return act_on_job(change);
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
  if (change.what == Change::What::kCreated) {
    group_appeared_in(job, change);
  } else if (change.what == Change::What::kRemoved &&
             (is_step(change.name) || is_task(change.name))) {
    task_removed(job, change, read_now);
  }
}

// A directory of a user's jobs below a v1 controller, among others.
void Sampler::act_on_owner(const Change& change) {
  parents_stale_ = true;
  const std::string& above = change.where.path;
  const std::string slurm = above.substr(above.rfind('/') + 1);
  if (!change.name.starts_with("uid_") || !slurm.starts_with("slurm") ||
      !measures(slurm.size() > 6 ? slurm.substr(6) : ""))
    return;
  if (change.what == Change::What::kCreated) missed_.owner_appeared(above, change.name);
  if (change.what == Change::What::kRemoved) missed_.owner_removed(above, change.name);
}

void Sampler::act_on_job(const Change& change) {
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
  const auto job = jobs_.find(job_key(parent->second, *name));
  if (job != jobs_.end() && job->second->groups.at(index(parent->second.controller)).there) {
    // It may have come again already, which the next notification says.
    group_removed(*job->second, index(parent->second.controller));
  }
}

void Sampler::group_appeared_in(Tracked& job, const Change& change) {
  job.at_end = false;
  const std::string path = change.where.path + "/" + change.name;
  if (is_step(change.name)) step_seen(job, change.name);
  if (change.where.kind == WatchKind::kJob && is_step(change.name)) {
    watch(job, WatchKind::kStep, path);
    if (job.groups.at(index(Controller::kUnified)).path == change.where.path)
      watch(job, WatchKind::kStep, path + "/user");
  } else if (change.where.kind == WatchKind::kStep && change.name == "user") {
    watch(job, WatchKind::kStep, path);
  }
}

void Sampler::task_removed(Tracked& job, const Change& change, std::set<std::string>& read_now) {
  const std::string path = change.where.path + "/" + change.name;
  if (is_step(change.name)) {
    for (const std::string& removed : {path, path + "/user"}) {
      watcher_.forget(removed);
      std::erase(job.watches, removed);
    }
  }
  // What the extern step, slurmstepd's own, does after the tasks is next to nothing.
  if (path.find("/step_extern") != std::string::npos) return;
  // Each controller notifies of each removal; the first that was read is enough.
  const std::string task = path.substr(path.find("/step_"));
  const bool known = job.ended_tasks.erase(task) > 0;
  // One reading for all that this batch of events says of the job: it is younger than each of
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

void Sampler::count_missed() {
  const auto [missed, directory] = missed_.take();
  counts_.missed += missed;
  if (missed == 0 || !logged_.allows("missed", clock_.steady())) return;
  log_.warning("USAGE_JOBS_MISSED",
               "a job came and went before its control groups could be watched, so it has no "
               "event; this is logged once, `status --json` counts them (missed)",
               {{"directory", directory}});
}

void Sampler::group_removed(Tracked& job, std::size_t controller) {
  Group& group = job.groups.at(controller);
  group.there = false;
  if (!job.vanished) {
    job.vanished = clock_.steady();
    job.vanished_time = clock_.now();
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    if (index(slot_table().at(i).controller) == controller) close_file(job.slots.at(i));
  }
}

// Checks whether its directories are still there; true if none is.
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

}  // namespace scriptorium::usage

#include "schedulers/usage/missed_jobs.h"

#include <algorithm>
#include <utility>

#include "core/base/path.h"

namespace scriptorium::usage {

// The same whatever the controller.
MissedJobs::Owner& MissedJobs::owner_of(const std::string& path) {
  return owners_[path.substr(parent_of(parent_of(path)).size() + 1)];
}

MissedJobs::Place& MissedJobs::place_of(const std::string& path) {
  return owner_of(path).places[parent_of(path)];
}

void MissedJobs::owner_appeared(const std::string& above, std::string_view name) {
  place_of(std::string(above).append("/").append(name)).there = true;
}

void MissedJobs::owner_removed(const std::string& above, std::string_view name) {
  Place& place = place_of(std::string(above).append("/").append(name));
  // What was seen in it may have been listed before its creation was read, so that stays.
  if (place.there && !std::exchange(place.had_job, false)) ++place.without_job;
  place.there = false;
}

void MissedJobs::job_listed(const std::string& owner) { place_of(owner).had_job = true; }

void MissedJobs::job_began(const std::string& owner) { ++owner_of(owner).jobs; }

void MissedJobs::job_seen(const std::string& owner) {
  Place& place = place_of(owner);
  place.had_job = true;
  ++place.jobs;
}

MissedJobs::Missed MissedJobs::take() {
  Missed missed;
  std::erase_if(owners_, [&](const auto& entry) {
    const auto& [key, owner] = entry;
    if (std::ranges::any_of(owner.places, [](const auto& place) { return place.second.there; }))
      return false;
    std::int64_t jobs = 0;
    for (const auto& [above, place] : owner.places) {
      const std::int64_t seen_elsewhere = std::max<std::int64_t>(owner.jobs - place.jobs, 0);
      jobs = std::max(jobs, place.without_job - seen_elsewhere);
    }
    missed.jobs += static_cast<std::uint64_t>(jobs);
    if (jobs > 0) missed.owner = key;
    return true;
  });
  return missed;
}

}  // namespace scriptorium::usage

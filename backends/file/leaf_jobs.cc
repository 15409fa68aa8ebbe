#include "backends/file/leaf_jobs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "backends/file/job_files.h"
#include "backends/file/store.h"
#include "core/api/kit/search/job_facts.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr std::string_view kScriptKind = "job.script";

bool is_regular_file(int directory, const std::string& name) {
  struct stat st{};
  return ::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

std::string location(const Leaf& leaf, const std::string& name) {
  return leaf.path.empty() ? name : leaf.path + '/' + name;
}

// A name may have been cut, and then "~" is in it.
bool may_be_of(std::string_view job_id, const std::string& place) {
  return place.find(job_id) != std::string::npos || place.find('~') != std::string::npos;
}

class LeafReader {
 public:
  LeafReader(const Layout& layout, int root, const Leaf& leaf, const Wanted& wanted,
             const std::function<bool()>& ended)
      : layout_(layout), root_(root), leaf_(leaf), wanted_(wanted), ended_(ended) {}

  LeafRead run() {
    const auto directory = open_directory(root_, leaf_.path);
    if (!directory) {
      if (directory.error().kind() != ErrorKind::kVanished)
        read_.problems.push_back(location(leaf_, "") + ": " + directory.error().message());
      return std::move(read_);
    }
    std::vector<std::string> records;
    for (const std::string& name : names(directory->get())) {
      if (ended_()) {
        read_.finished = false;
        return std::move(read_);
      }
      if (take(directory->get(), name)) records.push_back(name);
    }
    drop_superseded();
    join_all(directory->get(), records);
    return std::move(read_);
  }

 private:
  std::vector<std::string> names(int directory) {
    const std::string ending = layout_.endings()[static_cast<std::size_t>(FileKind::kMetadata)];
    const std::string record_ending = ".json" + layout_.after_record();
    std::vector<std::string> found;
    const auto listed = list_names(directory, [&](const char* entry, unsigned char) {
      const std::string_view name = entry;
      if (name.starts_with('.')) return true;
      if (!name.ends_with(ending) && !name.ends_with(record_ending)) return true;
      if (wanted_.job_id && !may_be_of(*wanted_.job_id, location(leaf_, std::string(name))))
        return true;
      found.emplace_back(name);
      return true;
    });
    if (!listed) read_.problems.push_back(leaf_.path + ": " + listed.error().message());
    std::ranges::sort(found);
    return found;
  }

  std::optional<Event> event_at(int directory, const std::string& name) {
    if (!is_regular_file(directory, name)) return std::nullopt;
    auto event = read_metadata(directory, name);
    if (event) return *std::move(event);
    if (event.error().kind() != ErrorKind::kVanished)
      read_.problems.push_back(location(leaf_, name) + ": " + event.error().message());
    return std::nullopt;
  }

  // True: it is the record of a later event, to be joined once all submissions are known.
  bool take(int directory, const std::string& name) {
    auto event = event_at(directory, name);
    if (!event) return false;
    if (event->kind != kScriptKind) return true;
    if (event->supersedes) superseded_.insert(*event->supersedes);
    read_.jobs.push_back({.row = row_of(*event), .files = {.metadata = name, .records = {}}});
    return false;
  }

  void drop_superseded() {
    if (superseded_.empty()) return;
    std::erase_if(read_.jobs,
                  [&](const LeafJob& job) { return superseded_.contains(job.row.event_id); });
  }

  // The submission that an event is about: ids may be used again.
  LeafJob& job_of(const Event& event) {
    const auto key = std::tuple(event.cluster, event.scheduler, owning_job_id(event));
    auto& indexes = by_id_[key];
    for (const std::size_t index : indexes) {
      if (read_.jobs[index].row.time == event.time) return read_.jobs[index];
    }
    std::optional<std::size_t> newest;
    for (const std::size_t index : indexes) {
      const Timestamp time = read_.jobs[index].row.time;
      if (time <= event.time && (!newest || time > read_.jobs[*newest].row.time)) newest = index;
    }
    if (newest) return read_.jobs[*newest];
    if (!indexes.empty()) return read_.jobs[indexes.front()];
    indexes.push_back(read_.jobs.size());
    return read_.jobs.emplace_back();
  }

  void join_all(int directory, const std::vector<std::string>& records) {
    for (std::size_t i = 0; i < read_.jobs.size(); ++i) {
      const JobRow& row = read_.jobs[i].row;
      by_id_[std::tuple(row.cluster, row.scheduler, row.id)].push_back(i);
    }
    for (const std::string& name : records) {
      const auto event = event_at(directory, name);
      if (!event || (event->kind != "usage.job" && event->kind != "job.life" &&
                     event->kind != "usage.node" && event->kind != "job.checkpoint")) {
        continue;
      }
      LeafJob& job = job_of(*event);
      if (job.row.id.empty()) {
        job.row.cluster = event->cluster;
        job.row.scheduler = event->scheduler;
        job.row.id = owning_job_id(*event);
        job.row.time = event->time;
      }
      join(job.row, *event);
      job.files.records.push_back(name);
    }
  }

  const Layout& layout_;
  int root_;
  const Leaf& leaf_;
  const Wanted& wanted_;
  const std::function<bool()>& ended_;
  LeafRead read_;
  std::set<std::string> superseded_;
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<std::size_t>> by_id_;
};

}  // namespace

LeafRead read_leaf(const Layout& layout, int root, const Leaf& leaf, const Wanted& wanted,
                   const std::function<bool()>& ended) {
  return LeafReader(layout, root, leaf, wanted, ended).run();
}

Result<OpenJob> OpenJob::open(int root, const Leaf& leaf, const JobFiles& files) {
  auto directory = open_directory(root, leaf.path);
  if (!directory) return directory.error();
  OpenJob job;
  job.path_ = leaf.path;
  job.metadata_ = files.metadata;
  if (!files.metadata.empty()) {
    auto event = read_metadata(directory->get(), files.metadata);
    if (!event) return event.error();
    job.row_ = row_of(*event);
    job.event_ = *std::move(event);
  }
  for (const std::string& name : files.records) {
    auto event = read_metadata(directory->get(), name);
    if (!event) continue;
    if (job.row_.id.empty()) {
      job.row_.cluster = event->cluster;
      job.row_.scheduler = event->scheduler;
      job.row_.id = owning_job_id(*event);
      job.row_.time = event->time;
    }
    join(job.row_, *event);
    job.later_.push_back(std::make_shared<const Event>(*std::move(event)));
  }
  if (job.row_.id.empty()) return Error{ErrorKind::kVanished, "the job is not there any more"};
  job.directory_ = *std::move(directory);
  return job;
}

Bytes OpenJob::read(std::string_view file) {
  if (!event_) return nullptr;
  const auto found = std::ranges::find(event_->files, file, &EventFile::name);
  if (found == event_->files.end() || found->bytes != nullptr)
    return found == event_->files.end() ? nullptr : found->bytes;
  // Only this one: the other may never be needed.
  Event alone = *event_;
  std::erase_if(alone.files, [&](const EventFile& f) { return f.name != file; });
  auto stored = read_contents(directory_.get(), metadata_, std::move(alone), false);
  if (!stored) {
    problems_.push_back((path_.empty() ? "" : path_ + '/') + metadata_ + ": " + std::string(file) +
                        ": " + stored.error().message());
    return nullptr;
  }
  found->bytes = stored->event.files.empty() ? nullptr : stored->event.files.front().bytes;
  return found->bytes;
}

JobRow OpenJob::whole_row() {
  if (!event_ || read("environment") == nullptr) return row_;
  JobRow row = row_of(*event_);
  for (const auto& event : later_) join(row, *event);
  return row;
}

std::shared_ptr<const Event> OpenJob::event() {
  if (!event_) return nullptr;
  read("script");
  read("environment");
  return std::make_shared<const Event>(*event_);
}

}  // namespace scriptorium::file

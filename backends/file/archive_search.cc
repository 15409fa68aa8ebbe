#include "backends/file/archive_search.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "backends/file/metadata_id.h"
#include "backends/file/store.h"
#include "core/base/accounts.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr std::uint64_t kMaxShownBytes = 64U << 20;
constexpr std::size_t kMaxFound = 100;
constexpr std::size_t kMaxNames = 2'000'000;
constexpr std::chrono::seconds kTimeLimit{20};

std::string below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + '/' + name;
}

}  // namespace

ArchiveSearch::ArchiveSearch(const FileConfig& config, const Layout& layout,
                             std::string_view job_id, const Clock& clock)
    : config_(config),
      layout_(layout),
      job_id_(job_id),
      clock_(clock),
      search_(layout.search(job_id)),
      deadline_(clock.steady() + kTimeLimit) {}

bool ArchiveSearch::ended() const noexcept { return cut_short_ || jobs_.size() >= kMaxFound; }

bool ArchiveSearch::for_each_name(int directory,
                                  const std::function<void(const std::string& name)>& each) {
  const auto listed = list_names(directory, [&](const char* name, unsigned char) {
    ++names_seen_;
    if (names_seen_ > kMaxNames || (names_seen_ % 4096 == 0 && clock_.steady() > deadline_))
      cut_short_ = true;
    if (ended()) return false;
    if (*name != '.') each(name);
    return true;
  });
  if (!listed) ++closed_;
  return listed.has_value();
}

void ArchiveSearch::walk(int directory, const std::string& path, std::size_t depth) {
  if (ended()) return;
  if (depth == search_.directories.size()) return read_files(directory, path);
  if (const auto& exact = search_.directories[depth].exact)
    return enter(directory, path, *exact, depth);
  for (const std::string& name : matching(directory, depth)) enter(directory, path, name, depth);
}

void ArchiveSearch::enter(int directory, const std::string& path, const std::string& name,
                          std::size_t depth) {
  const auto next = open_directory(directory, name);
  if (next) return walk(next->get(), below(path, name), depth + 1);
  if (next.error().kind() != ErrorKind::kVanished) ++closed_;
}

std::vector<std::string> ArchiveSearch::matching(int directory, std::size_t depth) {
  std::vector<std::string> names;
  const bool listed = for_each_name(directory, [&](const std::string& name) {
    if (glob_match(search_.directories[depth].glob, name)) names.push_back(name);
  });
  // Owners may pass through the root, but not list it.
  if (!listed && depth == 0 && layout_.begins_with_user()) {
    if (const auto we = find_user(::geteuid()); we && *we) names.push_back(safe_value((*we)->name));
  }
  std::ranges::sort(names, std::greater{});  // the newest first, where the names are dates
  return names;
}

void ArchiveSearch::read_files(int directory, const std::string& path) {
  std::map<std::string, std::vector<File>> by_stem;
  for_each_name(directory, [&](const std::string& name) {
    if (const auto match = search_.match(name, config_.kinds))
      by_stem[match->stem].emplace_back(match->kind, name);
  });
  for (auto& [stem, files] : by_stem) {
    if (jobs_.size() >= kMaxFound) return;
    std::ranges::sort(files);
    add_job(directory, path, files);
  }
}

void ArchiveSearch::add_job(int directory, const std::string& path,
                            const std::vector<File>& files) {
  StoredJob job;
  for (const auto& [kind, name] : files) {
    auto bytes = read_beneath(directory, name, kMaxShownBytes);
    if (!bytes) continue;  // a directory or pipe of that name, or gone by now
    if (kind == FileKind::kMetadata) {
      job.event_id = event_id_of(*bytes);
      // The name alone may match by accident, where no fixed text surrounds {job_id}.
      if (!has_id(*bytes, job_id_) && safe_value(job_id_) == job_id_) return;
    }
    const std::string location = config_.root + '/' + below(path, name);
    if (job.location.empty()) job.location = location;
    job.files.push_back({to_string(kind), location, make_bytes(*std::move(bytes))});
  }
  if (!job.files.empty()) jobs_.push_back(std::move(job));
}

}  // namespace scriptorium::file

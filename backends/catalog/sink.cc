#include "backends/catalog/sink.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "backends/catalog/outcome.h"
#include "backends/catalog/search.h"
#include "core/base/fault_point.h"
#include "core/base/file_system.h"
#include "core/base/path.h"

namespace scriptorium::catalog {
CatalogSink::CatalogSink(CatalogConfig config, const PluginContext& context)
    : config_(std::move(config)),
      instance_(context.name),
      log_(context.log),
      store_(config_, instance_, log_, context.clock),
      archive_(config_.root),
      maintenance_(config_, context.clock),
      search_(make_search(config_.root, context.clock)) {}

Result<void> CatalogSink::check() { return check_root(config_.root, config_.reader_group); }

Result<void> CatalogSink::start() {
  if (auto started = store_.start(); !started) return started;
  if (const auto shared = shared_file_system(config_.root)) {
    log_.warning("CATALOG_SHARED_FILE_SYSTEM",
                 "The catalog lies on a shared file system; no other host may use its directory",
                 {{"sink", instance_}, {"root", config_.root}, {"file_system", shared->name}});
  }
  return {};
}

void CatalogSink::stop(SteadyTime /*deadline*/) { store_.close(); }

void CatalogSink::deliver(std::vector<Delivery> batch) {
  if (!leaves_room(batch)) {
    for (Delivery& delivery : batch)
      delivery.retry("less than min_free_bytes would be free on root's file system");
    return;
  }
  std::vector<const Event*> events;
  events.reserve(batch.size());
  for (const Delivery& delivery : batch) events.push_back(&delivery.event());
  const std::vector<Stored> results = store_.put(events);
  FAULT_POINT("catalog.before_ack");
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (results[i].kind == Stored::Kind::kStored) ++stored_;
    if (results[i].kind == Stored::Kind::kFoundAgain) ++found_again_;
    settle(batch[i], results[i]);
  }
  if (auto tidied = store_.tidy(); !tidied) {
    log_.warning("CATALOG_NOT_TIDIED",
                 "What is stored could not be packed into blocks; the next batch tries again",
                 {{"sink", instance_}, {"reason", tidied.error().message()}});
  }
}

// What is written is at most about the batch's own size, twice: first to -wal.
bool CatalogSink::leaves_room(const std::vector<Delivery>& batch) const {
  if (config_.min_free_bytes <= 0) return true;
  struct statvfs disk{};
  if (::statvfs(config_.root.c_str(), &disk) != 0) return true;  // if it has no room, writing fails
  constexpr std::uint64_t kPagesOfAnEvent = std::uint64_t{8} * 4096;
  auto needed = static_cast<std::uint64_t>(config_.min_free_bytes);
  for (const Delivery& d : batch) needed += 2 * d.event().bytes_size() + kPagesOfAnEvent;
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize >= needed;
}

Result<std::vector<StoredJob>> CatalogSink::find(std::string_view job_id) {
  return archive_.find(job_id);
}

std::string CatalogSink::status_json() const {
  const Store::Figures figures = store_.figures();
  return "{\"jobs\":" + std::to_string(figures.jobs) +
         ",\"segments\":" + std::to_string(figures.segments) +
         ",\"stored\":" + std::to_string(stored_) +
         ",\"found_again\":" + std::to_string(found_again_) +
         ",\"pending_bytes\":" + std::to_string(figures.pending_bytes) +
         ",\"longest_commit_us\":" + std::to_string(figures.longest_commit_us) + "}";
}

}  // namespace scriptorium::catalog

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/catalog/config.h"
#include "backends/catalog/maintenance.h"
#include "backends/catalog/readable.h"
#include "backends/catalog/store.h"
#include "core/api/searchable.h"
#include "core/api/sink.h"

namespace scriptorium::catalog {

// A searchable archive in SQLite databases of this machine (schema.h has the format). Acknowledged
// means: the row, the script, the environment and the record of the event are committed with
// synchronous = FULL, so they would survive a power cut.
//
// A second delivery of an event changes nothing. An event that says which one it `replaces` or
// `supersedes` takes its row. A later event of a job is added to the job's row.
//
// Owns:    the databases' connections, from start() or the first batch to stop().
// Threads: as Sink says; deliver() may run in several at once, and then one waits for the other.
// Fails:   as outcome.h says.
class CatalogSink final : public Sink {
 public:
  // `config` must have passed parse_config().
  CatalogSink(CatalogConfig config, const PluginContext& context);

  Result<void> check() override;
  Result<void> start() override;
  void deliver(std::vector<Delivery> batch) override;
  void stop(SteadyTime deadline) override;
  Result<std::vector<StoredJob>> find(std::string_view job_id) override;
  std::string status_json() const override;
  ReadableSink* readable() override { return &archive_; }
  RewritableSink* rewritable() override { return &maintenance_; }
  Searchable* searchable() override { return search_.get(); }
  MaintainedSink* maintained() override { return &maintenance_; }
  std::vector<std::string> directories() const override { return {config_.root}; }

 private:
  bool leaves_room(const std::vector<Delivery>& batch) const;

  const CatalogConfig config_;
  const std::string instance_;
  Logger& log_;
  Store store_;
  Archive archive_;
  Maintenance maintenance_;
  const std::unique_ptr<Searchable> search_;

  std::atomic<std::uint64_t> stored_{0};
  std::atomic<std::uint64_t> found_again_{0};
};

}  // namespace scriptorium::catalog

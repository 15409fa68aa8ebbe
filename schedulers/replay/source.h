#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/api/options.h"
#include "core/api/spool_adapter.h"

namespace scriptorium::replay {

struct ReplayConfig {
  std::string folder;
  std::string scheduler = "replay";
};
std::vector<OptionInfo> describe();
ReplayConfig read_config(const Table& table, Problems& problems);

// A folder of recorded jobs as a source: FOLDER/ENTRY/script and, if there is one,
// FOLDER/ENTRY/environment. ENTRY is the job's id. Put the script in last, or move the whole ENTRY
// in, as a script is taken as soon as it is there.
class ReplaySource final : public SpoolAdapter {
 public:
  explicit ReplaySource(ReplayConfig config) : config_(std::move(config)) {}

  std::string scheduler() const override { return config_.scheduler; }
  std::string spool_root() const override { return config_.folder; }
  SpoolPath classify(std::string_view path) const override;
  Assessment assess(const SpoolEntry& entry) const override;
  Result<ParsedJob> parse(const SpoolEntry& entry) const override;

 private:
  ReplayConfig config_;
};

}  // namespace scriptorium::replay

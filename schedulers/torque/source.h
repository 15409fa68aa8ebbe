#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/api/spool_adapter.h"
#include "schedulers/torque/config.h"

namespace scriptorium::torque {

// pbs_server's spool (server_priv/jobs) as a source of job scripts. The functions are those of
// parse.h.
class TorqueSource final : public SpoolAdapter {
 public:
  using Exists = std::function<bool(const std::string& path)>;
  TorqueSource(TorqueConfig config, const PluginContext& context, Exists exists = file_exists)
      : config_(std::move(config)), context_(context), exists_(std::move(exists)) {}

  std::string scheduler() const override { return "torque"; }
  std::string spool_root() const override { return jobs_folder(config_.spool); }
  SpoolPath classify(std::string_view path) const override;
  Assessment assess(const SpoolEntry& entry) const override;
  Result<ParsedJob> parse(const SpoolEntry& entry) const override;
  std::string path_of(std::string_view entry, std::string_view file) const override;
  std::span<const std::string_view> file_names() const override;
  // The ids of accounts, which the records do not have, from this machine's name service.
  std::unique_ptr<OwnerResolver> make_resolver() override;
  // Refuses the spool of an execution host, and OpenPBS, whose server keeps no scripts in its
  // spool; the latter shows in what is in the server's home, which is all that is checked
  // outside of the spool.
  Result<void> check_root(std::span<const std::string> names) const override;

  static bool file_exists(const std::string& path);

 private:
  TorqueConfig config_;
  PluginContext context_;
  Exists exists_;
};

}  // namespace scriptorium::torque

#include "schedulers/slurm/source.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/number.h"
#include "schedulers/slurm/coordinators.h"
#include "schedulers/slurm/late.h"
#include "schedulers/slurm/owner.h"
#include "schedulers/slurm/parse.h"
#include "schedulers/slurm/site.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

// What slurmctld keeps beside the job scripts; with ".new" and ".old" each while it is being
// replaced.
constexpr std::array kStateFiles{"assoc_mgr_state"sv,
                                 "assoc_usage"sv,
                                 "bb_state"sv,
                                 "burst_buffer_cray_state"sv,
                                 "clustername"sv,
                                 "crontab"sv,
                                 "dbd.messages"sv,
                                 "fed_mgr_state"sv,
                                 "heartbeat"sv,
                                 "job_state"sv,
                                 "jwt_hs256.key"sv,
                                 "last_config_lite"sv,
                                 "last_tres"sv,
                                 "layouts_state_base"sv,
                                 "licenses_state"sv,
                                 "node_state"sv,
                                 "part_state"sv,
                                 "power_cap_state"sv,
                                 "priority_last_decay_ran"sv,
                                 "qos_usage"sv,
                                 "resv_state"sv,
                                 "trigger_state"sv,
                                 "acct_gather_state"sv};

bool is_slurmctlds(std::string_view name) {
  if (classify_path(name).role == SpoolPath::Role::kDirectory) return true;
  for (const std::string_view suffix : {".new"sv, ".old"sv}) {
    if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  }
  return std::find(kStateFiles.begin(), kStateFiles.end(), name) != kStateFiles.end();
}

// Names that say nothing about whose folder it is.
bool is_neutral(std::string_view name) { return name.starts_with('.') || name == "lost+found"; }

}  // namespace

SpoolPath SlurmSource::classify(std::string_view path) const { return classify_path(path); }

Assessment SlurmSource::assess(const SpoolEntry& entry) const { return assess_entry(entry); }

Result<ParsedJob> SlurmSource::parse(const SpoolEntry& entry) const { return parse_entry(entry); }

std::unique_ptr<OwnerResolver> SlurmSource::make_resolver() {
  if (config_.resolve == Resolve::kNone) return nullptr;
  return std::make_unique<SqueueResolver>(queue_, config_, context_.log, context_.clock);
}

std::unique_ptr<LateOwnerResolver> SlurmSource::make_late_owner_resolver() {
  if (config_.resolve == Resolve::kNone) return nullptr;
  return std::make_unique<LateResolver>(queue_, config_, context_.log, context_.clock);
}

// "hash.1/job.11": slurmctld counts up to MaxJobId, then begins at FirstJobId again.
std::optional<std::uint64_t> SlurmSource::number_of(std::string_view entry) const {
  const auto dot = entry.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  return parse_number<std::uint64_t>(entry.substr(dot + 1));
}

std::unique_ptr<NumberResolver> SlurmSource::make_number_resolver() const {
  if (config_.resolve == Resolve::kNone) return nullptr;
  return std::make_unique<SqueueNumbers>(queue_);
}

std::vector<Mismatch> SlurmSource::compare_with_scheduler(const std::stop_token& stop,
                                                          SteadyTime deadline) const {
  return compare_with_site(config_, context_.cluster, stop, deadline);
}

std::vector<std::string> SlurmSource::kept_under(std::string_view job_id,
                                                 const std::stop_token& stop,
                                                 SteadyTime deadline) const {
  return ids_of_script(config_, job_id, stop, deadline);
}

Result<KnownCoordinators> SlurmSource::coordinators(const std::stop_token& stop,
                                                    SteadyTime deadline) const {
  return ask_coordinators(config_, stop, deadline);
}

Result<void> SlurmSource::check_root(std::span<const std::string> names) const {
  const auto refuse = [&](std::string_view why) {
    return Error(
        ErrorKind::kInvalidConfig,
        "spool " + config_.spool + ": " + std::string(why) +
            "; give slurmctld's StateSaveLocation (scontrol show config | grep StateSaveLocation)");
  };
  const auto has = [&](std::string_view wanted) {
    return std::find(names.begin(), names.end(), wanted) != names.end();
  };
  if (std::any_of(names.begin(), names.end(), is_slurmctlds)) return {};
  if (has("server_priv") || has("mom_priv")) return refuse("this is Torque's, not Slurm's");
  if (has("cred_state") || has("cred_state.old"))
    return refuse("this is the spool of a node's slurmd");
  if (std::any_of(names.begin(), names.end(),
                  [](std::string_view name) { return name.starts_with("job."); })) {
    return refuse("this looks like one of its hash.N folders");
  }
  if (std::all_of(names.begin(), names.end(), is_neutral))
    return {};  // slurmctld has not run here yet
  return refuse("nothing in it is slurmctld's");
}

}  // namespace scriptorium::slurm

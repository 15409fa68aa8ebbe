#include "schedulers/slurm/owner.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/base/accounts.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "schedulers/slurm/script.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

constexpr auto kNamesFor = 5min;      // how long a name from passwd or group is believed
constexpr auto kRememberFor = 10min;  // how long we think of an entry that core asks no more about
constexpr auto kCheckPatience = 15s;  // of `scriptorium check`; Slurm's own MessageTimeout is 10 s

// A name service that cannot be asked now has no name for it: the number is what counts.
template <typename Record>
std::optional<std::string> name_of(Result<std::optional<Record>> found) {
  if (!found || !*found || (*found)->name.empty()) return std::nullopt;
  return std::move((*found)->name);
}

std::optional<std::uint64_t> job_number(std::string_view id) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  if (error != std::errc{} || end != id.data() + id.size() || number == 0) return std::nullopt;
  return number;
}

bool has_stub(const Event& event) {
  const EventFile* script = event.file("script");
  return script != nullptr && script->bytes != nullptr && is_het_stub(*script->bytes);
}

std::string first_line(std::string_view text) { return printable(text.substr(0, text.find('\n')), 200); }

// The rows of each id that was asked for.
template <typename Row>
class RowsById {
 public:
  RowsById(const std::vector<Row>& rows, const std::set<std::uint64_t>& wanted) {
    for (const Row& row : rows) {
      if (wanted.contains(row.array_job_id)) rows_[row.array_job_id].push_back(&row);
      // The spool of a burst-buffer array has an entry for a task, under the task's own id.
      else if (wanted.contains(row.job_id))
        tasks_[row.job_id].push_back(&row);
    }
  }
  const std::vector<const Row*>& of(std::uint64_t id) const {
    static const std::vector<const Row*> no_rows;
    if (const auto found = rows_.find(id); found != rows_.end()) return found->second;
    if (const auto found = tasks_.find(id); found != tasks_.end()) return found->second;
    return no_rows;
  }
  bool empty() const { return rows_.empty() && tasks_.empty(); }

 private:
  std::unordered_map<std::uint64_t, std::vector<const Row*>> rows_;
  std::unordered_map<std::uint64_t, std::vector<const Row*>> tasks_;
};

}  // namespace

AccountNames system_account_names() {
  return {
      [](uid_t id) { return name_of(find_user(id)); },
      [](gid_t id) { return name_of(find_group(id)); },
  };
}

SqueueResolver::SqueueResolver(SlurmConfig config, Logger& log, const Clock& clock, AccountNames names)
    : config_(std::move(config)), log_(log), clock_(clock), names_(std::move(names)) {}

Result<std::string> SqueueResolver::find_squeue() const {
  if (auto found = find_program(config_.squeue, "squeue", kSqueueFolders)) return *std::move(found);
  if (!config_.squeue.empty()) {
    return Error(ErrorKind::kInvalidConfig,
                 "squeue: " + config_.squeue + " cannot be executed; correct `squeue`, or set resolve = \"none\"");
  }
  return Error(ErrorKind::kInvalidConfig,
               "squeue is not in "s + kSqueueFolders +
                   "; install Slurm's client commands, say `squeue = \"/path\"`, or set resolve = \"none\"");
}

std::vector<std::string> SqueueResolver::child_environment() const {
  // Nothing of our own environment: SQUEUE_* and SLURM_* variables change what squeue prints.
  std::vector<std::string> result{"PATH=/usr/bin:/bin", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0"};
  if (!config_.slurm_conf.empty()) result.push_back("SLURM_CONF=" + config_.slurm_conf);
  return result;
}

Result<std::string> SqueueResolver::ask(std::vector<std::string> arguments, std::vector<std::string> environment,
                                        const std::stop_token& stop, SteadyTime deadline) {
  auto program = find_squeue();
  if (!program) return program.error();
  // `deadline` is one of our clock's, which a test may have set; the child lives in real time.
  const SteadyTime until = std::chrono::steady_clock::now() + (deadline - clock_.steady());
  auto result = runner_.run({*std::move(program), std::move(arguments), std::move(environment)}, stop, until);
  if (const std::size_t stuck = runner_.stuck(); stuck != 0) {
    log_.warning("SLURM_SQUEUE_STUCK", "a squeue that was killed does not end; it is waited for",
                 {{"processes", static_cast<std::uint64_t>(stuck)}});
  }
  if (!result) return result.error();
  if (result->status == 0) return std::move(result->output);
  if (says_unknown_job(result->error)) return std::string();
  return Error(ErrorKind::kTransient, "squeue: exit status " + std::to_string(result->status) + ": " + first_line(result->error));
}

Result<std::vector<QueueRow>> SqueueResolver::ask_numbers(const std::optional<std::string>& job, const std::stop_token& stop,
                                                          SteadyTime deadline) {
  auto output = ask(number_arguments(job), child_environment(), stop, deadline);
  if (!output) return output.error();
  return parse_numbers(*output);
}

Result<std::vector<NumberUse>> SqueueResolver::uses(const std::stop_token& stop, SteadyTime deadline) {
  auto output = ask(use_arguments(), child_environment(), stop, deadline);
  if (!output) return output.error();
  return parse_uses(*output);
}

Result<std::vector<TextRow>> SqueueResolver::ask_texts(const std::optional<std::string>& job, const std::stop_token& stop,
                                                       SteadyTime deadline) {
  auto nonce = random_hex(16);
  if (!nonce) return nonce.error();
  std::vector<std::string> environment = child_environment();
  environment.push_back("SQUEUE_FORMAT=" + text_format(*nonce));
  auto output = ask(text_arguments(job), std::move(environment), stop, deadline);
  if (!output) return output.error();
  return parse_texts(*output, *nonce);
}

OwnerAnswer::State SqueueResolver::note_absence(const EntryKey& entry) {
  const SteadyTime now = clock_.steady();
  const auto [found, is_new] = absent_.try_emplace(entry, Absence{now, now});
  found->second.last = now;
  if (is_new || now - found->second.first < min_interval()) return OwnerAnswer::State::kNotYet;
  absent_.erase(found);
  return OwnerAnswer::State::kUnknown;
}

std::optional<std::string> SqueueResolver::name_of(std::map<std::uint32_t, CachedName>& cache,
                                                   const std::optional<std::string>& number,
                                                   const std::function<std::optional<std::string>(std::uint32_t)>& ask_system) {
  const std::uint32_t id = static_cast<std::uint32_t>(std::stoul(number.value()));
  const SteadyTime now = clock_.steady();
  const auto [found, is_new] = cache.try_emplace(id);
  // A lookup may go to a directory server, so not for every job.
  if (is_new || found->second.until <= now) found->second = {ask_system(id), now + kNamesFor};
  return found->second.name;
}

void SqueueResolver::add_names(User& user) {
  user.name = name_of(users_, user.id, names_.user);
  user.group_name = name_of(groups_, user.group_id, names_.group);
}

void SqueueResolver::forget_old() {
  const SteadyTime old = clock_.steady() - kRememberFor;
  std::erase_if(absent_, [&](const auto& entry) { return entry.second.last < old; });
  std::erase_if(latest_, [&](const auto& entry) { return entry.second.asked < old; });
}

Result<std::vector<OwnerAnswer>> SqueueResolver::resolve(std::span<const OwnerQuery> queries, std::stop_token stop,
                                                         SteadyTime deadline) {
  std::vector<OwnerAnswer> answers(queries.size());
  if (queries.empty()) return answers;
  forget_old();
  std::set<std::uint64_t> wanted;
  for (const OwnerQuery& query : queries) {
    const auto id = job_number(query.event->job.id);
    if (!id) continue;
    wanted.insert(*id);
    LatestEntry& latest = latest_[*id];
    latest.script_mtime_ns = std::max(latest.script_mtime_ns, query.script_mtime_ns);
    latest.asked = clock_.steady();
  }
  // slurmctld sends one job alone quickly; for two ids squeue loads all jobs and filters them itself.
  std::optional<std::string> only;
  if (wanted.size() == 1) only = std::to_string(*wanted.begin());

  const auto numbers = ask_numbers(only, stop, deadline);
  if (!numbers) return numbers.error();
  const RowsById<QueueRow> rows(*numbers, wanted);
  std::vector<TextRow> text_rows;
  if (!rows.empty()) {
    auto texts = ask_texts(only, stop, deadline);
    if (texts) {
      text_rows = *std::move(texts);
    } else {
      log_.warning("SLURM_NAMES_UNREAD", "squeue gave owners but not names and accounts; jobs go out without them",
                   {{"reason", texts.error().message()}});
    }
  }
  const RowsById<TextRow> texts(text_rows, wanted);

  std::size_t hidden = 0;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const OwnerQuery& query = queries[i];
    const auto id = job_number(query.event->job.id);
    if (!id) {
      answers[i].state = OwnerAnswer::State::kUnknown;
      continue;
    }
    const EntryKey key{*id, query.script_mtime_ns};
    const bool unchanged = query.entry_unchanged && query.entry_unchanged();
    if (rows.of(*id).empty()) {
      if (unchanged) ++hidden;
      answers[i].state = note_absence(key);
      continue;
    }
    absent_.erase(key);
    answers[i] = make_answer(rows.of(*id), texts.of(*id),
                             {.job_id = *id,
                              .script_mtime_ns = query.script_mtime_ns,
                              .unchanged = unchanged,
                              .id_came_again = latest_[*id].script_mtime_ns > query.script_mtime_ns,
                              .stub = has_stub(*query.event)});
    if (answers[i].state == OwnerAnswer::State::kFound) add_names(answers[i].user);
  }
  if (hidden != 0) {
    log_.warning(
        "SLURM_JOBS_HIDDEN",
        "slurmctld does not list jobs whose entries stand in the spool; give our user operator level if PrivateData hides jobs, "
        "and see that slurm_conf is that of this spool's cluster",
        {{"jobs", static_cast<std::uint64_t>(hidden)}, {"uid", static_cast<std::uint64_t>(geteuid())}});
  }
  return answers;
}

Result<void> SqueueResolver::check() {
  const auto numbers = ask_numbers(std::nullopt, {}, clock_.steady() + kCheckPatience);
  if (!numbers) {
    if (numbers.error().kind() == ErrorKind::kInvalidConfig) return numbers.error();
    return numbers.error().with_context("slurmctld cannot be asked for owners now, so users stay unverified until it can");
  }
  const uid_t we = geteuid();
  // Root and SlurmUser, who owns the spool, see every job whatever PrivateData says.
  if (we == 0) return {};
  if (const auto spool = stat_path(config_.spool); spool && spool->owner == we) return {};
  const bool sees_others = std::any_of(numbers->begin(), numbers->end(), [&](const QueueRow& row) { return row.uid != we; });
  if (sees_others) return {};
  return Error(
      ErrorKind::kTransient,
      "squeue answers, but shows no job of another user: either there is none now, or PrivateData=jobs hides them from uid " +
          std::to_string(we) + " (then: sacctmgr modify user NAME set adminlevel=operator)");
}

}  // namespace scriptorium::slurm

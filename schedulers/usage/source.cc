#include "schedulers/usage/source.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "core/base/file.h"
#include "core/base/pause.h"
#include "core/base/stop_signal.h"
#include "core/base/text.h"
#include "schedulers/slurm_client/names.h"
#include "schedulers/usage/accounting.h"
#include "schedulers/usage/events.h"
#include "schedulers/usage/job_summaries.h"
#include "schedulers/usage/own_usage.h"
#include "schedulers/usage/state.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;

// Samples that wait while the journal is full; then every other one goes.
constexpr std::size_t kMostSamples = 8192;
// Summaries of nodes that wait; each takes some 3 KiB.
constexpr std::size_t kMostNodes = 20'000;
constexpr std::size_t kMostEventsOfAWrite = 512;
constexpr std::size_t kMostStateBytes = std::size_t{256} << 20;
// How often the state file is replaced at most, and how long usage.job is waited for with `run
// --once`.
constexpr auto kSaveInterval = 1s;
constexpr auto kOncePatience = 15s;
constexpr auto kRetry = 1s;

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  const std::string whole = name.data();
  return whole.substr(0, whole.find('.'));
}

std::string boot_id(Files& files, const std::string& proc) {
  std::string id;
  static_cast<void>(read_text(files, proc + "/sys/kernel/random/boot_id", id, 64));
  id.resize(std::min(id.size(), id.find('\n')));
  return id;
}

SamplerOptions sampler_options(const UsageConfig& config, Executables* executables) {
  SamplerOptions options;
  options.root = config.root;
  options.proc = config.proc;
  options.node = config.node.empty() ? host_name() : config.node;
  options.nodes = config.nodes;
  options.interval = std::chrono::seconds(config.interval_seconds);
  options.samples = config.samples;
  options.process_io = config.process_io;
  options.kept_files = static_cast<std::size_t>(config.kept_files);
  options.gpu_jobs_dir = config.gpu_jobs_dir;
  options.sluid_dir = config.sluid_dir;
  options.executables = config.executables ? executables : nullptr;
  return options;
}

GpuMonitor::Options gpu_options(const UsageConfig& config) {
  if (!config.gpus) return {};
  return {config.nvml_library, config.sys, std::chrono::seconds(config.gpu_interval_seconds)};
}

// Asks the scheduler to run this thread soon after it wakes up: a job's counters remain for some 20
// ms after its end, and the jobs keep all CPUs busy. From Linux 6.12 on a short time slice does
// that, and needs no rights; older ones take no notice.
void ask_for_short_waits() {
  struct {
    std::uint32_t size = 48;
    std::uint32_t policy = 0;  // SCHED_OTHER
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000;  // ns, the shortest that is taken
    std::uint64_t deadline = 0, period = 0;
  } attributes;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  static_cast<void>(::syscall(SYS_sched_setattr, 0, &attributes, 0));
}

}  // namespace

// ---- the measuring side

class UsageSource::Node {
 public:
  Node(UsageSource& source, EventWriter& writer)
      : source_(source),
        config_(source.config_),
        log_(source.context_.log),
        writer_(writer),
        boot_id_(boot_id(source.files_, config_.proc)),
        gpus_(gpu_options(config_), source.files_, log_, source.context_.clock),
        sampler_(sampler_options(config_, source.context_.executables), source.files_, gpus_, log_,
                 source.context_.clock),
        summaries_(config_.jobs, source.context_) {}

  Result<void> run(const std::stop_token& stop) {
    load_state();
    {
      const std::jthread publisher([this](const std::stop_token& ending) { publish(ending); });
      const std::jthread keeper([this](const std::stop_token& ending) { keep_state(ending); });
      watch(stop);
    }
    // Whatever could not be written is written after the next start.
    save_state();
    return {};
  }

  Result<void> run_once(const std::stop_token& stop) {
    load_state();
    sampler_.step();
    hand_over();
    const auto deadline = std::chrono::steady_clock::now() + kOncePatience;
    Result<void> written;
    while (true) {
      take_work();
      written = write_all();
      if (!written || stop.stop_requested()) break;
      take_ready(summaries_.poll(stop));
      if (written = write_all(); !written) break;
      const auto next = summaries_.next_poll();
      if (!next || *next >= deadline || stop.stop_requested()) break;
      pause_until(stop, *next);
    }
    save_state();
    return written;
  }

 private:
  struct Pending {
    std::shared_ptr<const std::string> record;
    bool node_written = false;  // usage.node is in the journal
    bool done = false;          // usage.job is, or is not ours to make
  };
  struct Queue {
    std::deque<UsageSample> samples;
    std::vector<NodeUsage> nodes;
    std::map<std::string, Pending> pending;  // by JobSeen::key()
    std::vector<LifeState> lives;            // as of the last change that matters
    bool save = false;
  };

  // ---- this thread: reads counters

  void watch(const std::stop_token& stop) {
    ask_for_short_waits();
    const StopSignal signal(stop);
    while (!stop.stop_requested()) {
      sampler_.step();
      hand_over();
      const auto wait = sampler_.next_due() - source_.context_.clock.steady();
      const auto milliseconds =
          std::chrono::ceil<std::chrono::milliseconds>(std::max<SteadyTime::duration>(wait, 0s));
      std::array<pollfd, 2> fds = {{{signal.fd(), POLLIN, 0}, {sampler_.notify_fd(), POLLIN, 0}}};
      const int timeout = static_cast<int>(std::min<std::int64_t>(milliseconds.count(), 60'000));
      if (::poll(fds.data(), sampler_.notify_fd() >= 0 ? 2 : 1, timeout) < 0 && errno != EINTR)
        return;
    }
  }

  void hand_over() {
    Sampler::Output output = sampler_.take();
    const UsageCounts counts = sampler_.counts();
    const bool swept = counts.sweeps != swept_;
    swept_ = counts.sweeps;
    if (swept || !output.ended.empty()) report(counts);
    if (output.empty() && !swept) return;
    std::vector<std::pair<std::string, Pending>> ended;
    ended.reserve(output.ended.size());
    for (const NodeUsage& node : output.ended) {
      ended.emplace_back(node.job.key(),
                         Pending{std::make_shared<const std::string>(node_record(node))});
    }
    std::vector<LifeState> lives = sampler_.lives();
    std::uint64_t thinned = 0;
    std::uint64_t dropped = 0;
    queue_.with_notify([&](Queue& queue) {
      for (UsageSample& sample : output.samples) queue.samples.push_back(std::move(sample));
      thinned = thin(queue.samples);
      for (auto& [key, pending] : ended) queue.pending.insert_or_assign(key, std::move(pending));
      for (NodeUsage& node : output.ended) queue.nodes.push_back(std::move(node));
      while (queue.pending.size() > kMostNodes) {
        queue.pending.erase(queue.pending.begin());
        ++dropped;
      }
      if (queue.nodes.size() > kMostNodes) {
        queue.nodes.erase(queue.nodes.begin(),
                          queue.nodes.end() - static_cast<std::ptrdiff_t>(kMostNodes));
      }
      queue.save = queue.save || !queue.lives.empty() || !lives.empty() || !ended.empty();
      queue.lives = std::move(lives);
    });
    if (thinned + dropped == 0) return;
    source_.status_.with([&](Status& status) {
      status.samples_thinned += thinned;
      status.nodes_dropped += dropped;
    });
    if (thinned > 0) {
      log_.warning("USAGE_SAMPLES_THINNED",
                   "the journal takes no more, so every other waiting usage.sample was left out",
                   {{"source", source_.context_.name}, {"samples", thinned}});
    }
    if (dropped > 0) {
      log_.error("USAGE_NODES_DROPPED",
                 "the journal takes no more, and more jobs have ended than can be kept meanwhile",
                 {{"source", source_.context_.name}, {"jobs", dropped}});
    }
  }

  // Keeps the newest and every other one of the rest.
  static std::uint64_t thin(std::deque<UsageSample>& samples) {
    std::uint64_t thinned = 0;
    while (samples.size() > kMostSamples) {
      std::deque<UsageSample> kept;
      for (std::size_t i = 1; i < samples.size(); i += 2) kept.push_back(std::move(samples[i]));
      thinned += samples.size() - kept.size();
      samples = std::move(kept);
    }
    return thinned;
  }

  void report(const UsageCounts& counts) {
    std::string tree = sampler_.describe_tree();
    source_.status_.with([&](Status& status) {
      status.counts = counts;
      status.tree = std::move(tree);
      status.gpus = gpus_.size();
    });
  }

  // ---- the publisher: writes events and asks slurmctld

  void publish(const std::stop_token& stop) noexcept {
    while (true) {
      try {
        const auto next = summaries_.next_poll();
        const bool retry = !unwritten_.empty();
        auto deadline = next.value_or(std::chrono::steady_clock::now() + 1h);
        if (retry) deadline = std::min(deadline, std::chrono::steady_clock::now() + kRetry);
        queue_.wait_until(stop, deadline, [](const Queue& queue) {
          return !queue.samples.empty() || !queue.nodes.empty();
        });
        take_work();
        const auto written = write_all();
        if (stop.stop_requested()) return;
        if (!written) {
          log_.warning("USAGE_NOT_WRITTEN",
                       "usage events could not be put into the journal and are tried again",
                       {{"source", source_.context_.name}, {"reason", written.error().message()}});
          continue;
        }
        take_ready(summaries_.poll(stop));
        if (auto more = write_all(); !more && stop.stop_requested()) return;
        source_.status_.with([&](Status& status) { status.jobs = summaries_.status_json(); });
      } catch (const std::exception& e) {
        log_.error("USAGE_PUBLISHER_FAILED",
                   "usage events could not be made; the publisher goes on with what comes next",
                   {{"source", source_.context_.name}, {"reason", e.what()}});
        if (stop.stop_requested()) return;
      }
    }
  }

  // What waits becomes events that are not written yet.
  void take_work() {
    std::deque<UsageSample> samples;
    std::vector<NodeUsage> nodes;
    queue_.with([&](Queue& queue) {
      samples = std::exchange(queue.samples, {});
      nodes = std::exchange(queue.nodes, {});
    });
    for (const UsageSample& sample : samples) {
      unwritten_.push_back({sample_event(source_.context_.cluster, sample), {}, {}});
      slurm_client::add_names(unwritten_.back().event.user);
    }
    for (NodeUsage& node : nodes) {
      const std::string key = node.job.key();
      const bool written = queue_.with([&](const Queue& queue) {
        const auto found = queue.pending.find(key);
        return found != queue.pending.end() && found->second.node_written;
      });
      if (!written) {
        unwritten_.push_back({node_event(source_.context_.cluster, node), key, {}});
        slurm_client::add_names(unwritten_.back().event.user);
      }
      summaries_.node_ended(std::move(node));
    }
  }

  void take_ready(JobSummaries::Ready ready) {
    for (Event& event : ready.events) unwritten_.push_back({std::move(event), {}, {}});
    if (ready.done.empty()) return;
    // Done once everything before it is written.
    if (unwritten_.empty()) {
      settle({}, ready.done);
    } else {
      auto& done = unwritten_.back().done;
      done.insert(done.end(), ready.done.begin(), ready.done.end());
    }
  }

  Result<void> write_all() {
    while (!unwritten_.empty()) {
      const auto count =
          static_cast<std::ptrdiff_t>(std::min(unwritten_.size(), kMostEventsOfAWrite));
      std::vector<Event> events;
      for (auto it = unwritten_.begin(); it != unwritten_.begin() + count; ++it)
        events.push_back(it->event);
      if (auto written = writer_.write(std::move(events)); !written) return written;
      std::vector<std::string> nodes;
      std::vector<std::string> done;
      for (auto it = unwritten_.begin(); it != unwritten_.begin() + count; ++it) {
        if (!it->node.empty()) nodes.push_back(it->node);
        done.insert(done.end(), it->done.begin(), it->done.end());
      }
      unwritten_.erase(unwritten_.begin(), unwritten_.begin() + count);
      settle(nodes, done);
    }
    return {};
  }

  void settle(const std::vector<std::string>& nodes, const std::vector<std::string>& done) {
    if (nodes.empty() && done.empty()) return;
    const std::size_t waiting = queue_.with_notify([&](Queue& queue) {
      const auto mark = [&](const std::vector<std::string>& keys, bool Pending::* flag) {
        for (const std::string& key : keys) {
          const auto found = queue.pending.find(key);
          if (found == queue.pending.end()) continue;
          found->second.*flag = true;
          if (found->second.node_written && found->second.done) queue.pending.erase(found);
        }
      };
      mark(nodes, &Pending::node_written);
      mark(done, &Pending::done);
      queue.save = true;
      return queue.pending.size();
    });
    source_.status_.with([&](Status& status) { status.nodes_waiting = waiting; });
  }

  // ---- the keeper: writes the state file

  void keep_state(const std::stop_token& stop) noexcept {
    while (queue_.wait(stop, [](const Queue& queue) { return queue.save; })) {
      try {
        save_state();
      } catch (const std::exception& e) {
        state_failed(e.what());
      }
      queue_.wait_until(stop, std::chrono::steady_clock::now() + kSaveInterval,
                        [](const Queue&) { return false; });
    }
  }

  void save_state() {
    std::vector<LifeState> lives;
    std::vector<std::pair<std::shared_ptr<const std::string>, bool>> ended;
    const bool save = queue_.with([&](Queue& queue) {
      lives = queue.lives;
      for (const auto& [key, pending] : queue.pending)
        ended.emplace_back(pending.record, pending.node_written);
      return std::exchange(queue.save, false);
    });
    if (!save || config_.state_file.empty()) return;
    std::string text = state_header(boot_id_);
    for (const LifeState& life : lives) text += state_line(life);
    for (const auto& [record, written] : ended) text += state_line(*record, written);
    const std::string folder = std::filesystem::path(config_.state_file).parent_path();
    auto saved = make_directories(folder, 0750);
    if (saved) saved = replace_file(config_.state_file, text, 0600);
    if (!saved) return state_failed(saved.error().message());
    source_.status_.with([](Status& status) { status.state_problem.clear(); });
  }

  void state_failed(const std::string& reason) {
    const bool first = source_.status_.with(
        [&](Status& status) { return std::exchange(status.state_problem, reason).empty(); });
    if (!first) return;
    log_.warning("USAGE_STATE_NOT_SAVED",
                 "the state file cannot be written, so a restart would cut running jobs in two; "
                 "name a place with state_file "
                 "that this user may write",
                 {{"source", source_.context_.name}, {"reason", reason}});
  }

  void load_state() {
    if (config_.state_file.empty()) return;
    auto text = read_file(config_.state_file, kMostStateBytes);
    if (!text) {
      if (text.error().kind() != ErrorKind::kVanished) {
        log_.warning("USAGE_STATE_UNREADABLE",
                     "the state file cannot be read; jobs that run are measured from now on",
                     {{"source", source_.context_.name}, {"reason", text.error().message()}});
      }
      return;
    }
    auto content = parse_state(*text);
    if (!content || content->damaged > 0) {
      const std::string reason =
          content ? std::to_string(content->damaged) + " of its lines are damaged and left out"
                  : content.error().message();
      log_.warning(
          "USAGE_STATE_DAMAGED",
          "the state file is damaged; what is whole in it is used, and it is written anew",
          {{"source", source_.context_.name}, {"file", config_.state_file}, {"reason", reason}});
      if (!content) return;
    }
    queue_.with([&](Queue& queue) {
      for (EndedNode& ended : content->ended) {
        queue.pending.insert_or_assign(
            ended.node.job.key(),
            Pending{std::make_shared<const std::string>(node_record(ended.node)), ended.written});
        queue.nodes.push_back(std::move(ended.node));
      }
    });
    const bool same_boot = !boot_id_.empty() && content->boot_id == boot_id_;
    sampler_.restore(std::move(content->lives), same_boot);
  }

  // An event that is to be written, and what is then known to be in the journal.
  struct Unwritten {
    Event event;
    std::string node;               // its key, for a usage.node
    std::vector<std::string> done;  // keys of nodes that need not be kept once it is written
  };

  UsageSource& source_;
  const UsageConfig& config_;
  Logger& log_;
  EventWriter& writer_;
  const std::string boot_id_;
  GpuMonitor gpus_;
  Sampler sampler_;
  std::uint64_t swept_ = 0;

  Guarded<Queue> queue_;

  // The publisher's own.
  JobSummaries summaries_;
  std::deque<Unwritten> unwritten_;
};

// ---- the source

UsageSource::UsageSource(UsageConfig config, const PluginContext& context, Files& files)
    : config_(std::move(config)), context_(context), files_(files) {}
UsageSource::~UsageSource() = default;

Result<void> UsageSource::check() {
  if (config_.samples_node() && CgroupTree(config_.root, files_).describe().empty()) {
    return Error{ErrorKind::kInvalidConfig, "root = \"" + config_.root +
                                                "\" holds no control groups; is it where they are "
                                                "mounted (findmnt -t cgroup,cgroup2)?"};
  }
  return check_jobs(config_.jobs);
}

Result<void> UsageSource::run_node(EventWriter& writer, const std::stop_token& stop, bool once) {
  UniqueFd lock;
  if (!config_.state_file.empty()) {
    auto locked = lock_state(config_.state_file);
    if (!locked) return locked.error();
    lock = *std::move(locked);
  }
  if (config_.executables && context_.executables == nullptr) {
    context_.log.warning("USAGE_NO_EXECUTABLES",
                         "executables = true has no effect, because CAP_SYS_PTRACE was not in "
                         "effect when the daemon started, or nothing asked for it then; copy "
                         "the drop-in usage-programs.conf as zz-usage-programs.conf, so that it "
                         "is applied after usage.conf, and restart the daemon",
                         {{"source", context_.name}});
  }
  Node node(*this, writer);
  return once ? node.run_once(stop) : node.run(stop);
}

Result<void> UsageSource::run(EventWriter& writer, std::stop_token stop, bool once) {
  const bool imports = config_.jobs.accounting != Accounting::kNone;
  if (!config_.samples_node()) return run_accounting(config_.jobs, context_, writer, stop, once);
  if (!imports) return run_node(writer, stop, once);
  if (once) {
    if (auto node = run_node(writer, stop, once); !node) return node;
    return run_accounting(config_.jobs, context_, writer, stop, once);
  }
  {
    const std::jthread accounting([&](const std::stop_token& ending) noexcept {
      while (!ending.stop_requested()) {
        auto ended = run_accounting(config_.jobs, context_, writer, ending, false);
        if (ending.stop_requested() || ended) return;
        context_.log.warning("USAGE_ACCOUNTING_FAILED",
                             "the import from accounting failed and is tried again",
                             {{"source", context_.name}, {"reason", ended.error().message()}});
        pause_for(ending, 10s);
      }
    });
    return run_node(writer, stop, once);
  }
}

std::string UsageSource::status_json() const {
  using Json = nlohmann::ordered_json;
  const Status status = status_.with([](const Status& s) { return s; });
  Json json = {{"control_groups", status.tree},
               {"jobs", status.counts.jobs},
               {"readings", status.counts.readings},
               {"sweeps", status.counts.sweeps},
               {"last_sweep_seconds", status.counts.last_sweep_seconds},
               {"started", status.counts.started},
               {"ended", status.counts.ended},
               {"read_at_end", status.counts.at_removal},
               {"gone_before_first_reading", status.counts.unread},
               {"missed", status.counts.missed},
               {"watch_overflows", status.counts.overflows},
               {"unreadable_files", status.counts.unreadable},
               {"open_files", status.counts.open_files},
               {"gpus", status.gpus},
               {"nodes_waiting", status.nodes_waiting},
               {"nodes_dropped", status.nodes_dropped},
               {"samples_thinned", status.samples_thinned}};
  if (!status.state_problem.empty()) json["state_file_error"] = printable(status.state_problem);
  if (!status.jobs.empty()) json["job_summaries"] = Json::parse(status.jobs, nullptr, false);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::unique_ptr<OwnJob>> UsageSource::own_job() {
  OwnUsage::Options options{.sampler = sampler_options(config_, nullptr),
                            .gpus = gpu_options(config_),
                            .jobs = config_.jobs};
  return OwnUsage::find(std::move(options), context_, files_);
}

}  // namespace scriptorium::usage

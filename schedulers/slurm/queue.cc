#include "schedulers/slurm/queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "schedulers/slurm_client/command.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;

constexpr auto kWindow = 5min;  // the share is reported over one or two of these

}  // namespace

Queue::Queue(SlurmConfig config, Logger& log, const Clock& clock)
    : config_(std::move(config)), log_(log), clock_(clock) {
  state_.with([&](State& s) { s.window_begin = s.next_list = clock_.steady(); });
}

Result<QueueAnswer> Queue::ask(const std::optional<std::string>& job, const std::stop_token& stop,
                               SteadyTime deadline) {
  const auto program = slurm_client::find_command(config_.squeue, "squeue");
  if (!program) return program.error();
  const auto guard = slurm_client::new_guard();
  if (!guard) return guard.error();
  QueueAnswer answer{.asked = clock_.steady(), .rows = {}};
  // `deadline` is one of our clock's, which a test may have set; the child lives in real time.
  const SteadyTime until = std::chrono::steady_clock::now() + (deadline - clock_.steady());
  auto runner = runners_.with([](auto& idle) {
    if (idle.empty()) return std::make_unique<CommandRunner>();
    auto taken = std::move(idle.back());
    idle.pop_back();
    return taken;
  });
  auto result =
      runner->run({*program, queue_arguments(job),
                   slurm_client::squeue_environment(config_.slurm_conf, queue_format(*guard))},
                  stop, until);
  if (const std::size_t stuck = runner->stuck(); stuck != 0) {
    log_.warning("SLURM_SQUEUE_STUCK", "a squeue that was killed does not end; it is waited for",
                 {{"processes", static_cast<std::uint64_t>(stuck)}});
  }
  runners_.with([&](auto& idle) { idle.push_back(std::move(runner)); });
  if (!result) return result.error();
  if (result->status != 0) {
    if (job && slurm_client::says_unknown_job(result->error)) return answer;
    return exit_error("squeue", *result);
  }
  auto rows = parse_queue(result->output, *guard);
  if (!rows) return rows.error();
  answer.rows = *std::move(rows);
  return answer;
}

void Queue::spend(State& state, SteadyTime::duration cost) const {
  const SteadyTime now = clock_.steady();
  if (now - state.window_begin >= kWindow) {
    state.window_before = now - state.window_begin;
    state.spent_before = std::exchange(state.spent, {});
    state.window_begin = now;
  }
  state.spent += cost;
  state.next_list = std::max(state.next_list, now) + cost * kShare;
}

Result<QueueAnswer> Queue::one(std::uint64_t job, const std::stop_token& stop,
                               SteadyTime deadline) {
  auto answer = ask(std::to_string(job), stop, deadline);
  state_.with([&](State& s) {
    ++s.single_questions;
    spend(s, kCostOfOne);
  });
  return answer;
}

Result<std::shared_ptr<const QueueAnswer>> Queue::all(SteadyTime since, const std::stop_token& stop,
                                                      SteadyTime deadline) {
  const auto last = [&] {
    return state_.with(
        [&](const State& s) { return s.last && s.last->asked >= since ? s.last : nullptr; });
  };
  const SteadyTime until = std::chrono::steady_clock::now() + (deadline - clock_.steady());
  if (!listing_.wait_until(stop, until, [](bool& busy) { return !std::exchange(busy, true); }))
    return Error(ErrorKind::kTransient, "squeue: another question takes too long");
  struct Done {
    Guarded<bool>& listing;
    ~Done() {
      listing.with_notify([](bool& busy) { busy = false; });
    }
  } const done{listing_};
  if (auto known = last()) return known;
  if (clock_.steady() < next_list()) return std::shared_ptr<const QueueAnswer>();
  const SteadyTime begun = std::chrono::steady_clock::now();
  auto answer = ask(std::nullopt, stop, deadline);
  const SteadyTime::duration took = std::chrono::steady_clock::now() - begun;
  if (!answer) {
    // What a failure has cost slurmctld is not known; it may be nothing.
    state_.with([](State& s) { ++s.lists; });
    return answer.error();
  }
  std::shared_ptr<const QueueAnswer> shared =
      std::make_shared<const QueueAnswer>(*std::move(answer));
  state_.with([&](State& s) {
    ++s.lists;
    spend(s, took);
    s.last = shared;
  });
  return shared;
}

Result<QueueAnswer> Queue::list(const std::stop_token& stop, SteadyTime deadline) {
  return ask(std::nullopt, stop, deadline);
}

SteadyTime Queue::next_list() const {
  return state_.with([](const State& s) { return s.next_list; });
}

SchedulerLoad Queue::load() const {
  return state_.with([&](const State& s) {
    SchedulerLoad load;
    load.questions = {{"one job", s.single_questions}, {"all jobs", s.lists}};
    const std::chrono::duration<double> spent = s.spent + s.spent_before;
    const std::chrono::duration<double> time = (clock_.steady() - s.window_begin) + s.window_before;
    load.share = spent / std::max<std::chrono::duration<double>>(time, 1min);
    return load;
  });
}

}  // namespace scriptorium::slurm

#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/api/sink.h"

namespace scriptorium::test {

// Plays core's part towards a sink: makes deliveries and remembers how each was settled. Use it to
// call a sink's deliver() without a dispatcher.
//
//   Outbox outbox;
//   sink.deliver(outbox.batch({make_event("1"), make_event("2")}));
//   EXPECT_EQ(outbox.outcome("1"), Outcome::kAcknowledged);
//
// Threads: any.
class Outbox {
 public:
  using Settlement = Settler::Settlement;

  Delivery delivery(std::shared_ptr<const Event> event, std::uint32_t attempt = 1) {
    const std::uint64_t token = record_->add(event->job.id);
    return Delivery(std::move(event), attempt, record_, token);
  }
  std::vector<Delivery> batch(std::vector<std::shared_ptr<const Event>> events,
                              std::uint32_t attempt = 1) {
    std::vector<Delivery> deliveries;
    deliveries.reserve(events.size());
    for (auto& event : events) deliveries.push_back(delivery(std::move(event), attempt));
    return deliveries;
  }

  // How the latest delivery of this job was settled; nothing while it is not.
  std::optional<Settlement> settlement(const std::string& job_id) const {
    return record_->find(job_id);
  }
  std::optional<Outcome> outcome(const std::string& job_id) const {
    auto found = settlement(job_id);
    return found ? std::optional(found->outcome) : std::nullopt;
  }
  std::string reason(const std::string& job_id) const {
    auto found = settlement(job_id);
    return found ? found->reason : std::string{};
  }
  std::size_t unsettled() const { return record_->unsettled(); }
  // Settlements that came for a delivery that already had one. Delivery keeps these away, so it is
  // always 0.
  std::size_t settled_twice() const { return record_->settled_twice(); }
  bool wait_all_settled(std::chrono::milliseconds limit = std::chrono::seconds(20)) const {
    return record_->wait_all(limit);
  }

 private:
  class Record : public Settler {
   public:
    std::uint64_t add(const std::string& job_id) {
      std::lock_guard lock(mutex_);
      const std::uint64_t token = ++last_token_;
      tokens_[job_id] = token;
      settlements_[token] = std::nullopt;
      return token;
    }
    void settled(Settlement settlement) noexcept override {
      std::lock_guard lock(mutex_);
      auto& slot = settlements_[settlement.token];
      if (slot) {
        ++settled_twice_;
      } else {
        slot = std::move(settlement);
      }
      changed_.notify_all();
    }
    std::optional<Settlement> find(const std::string& job_id) const {
      std::lock_guard lock(mutex_);
      auto token = tokens_.find(job_id);
      return token == tokens_.end() ? std::nullopt : settlements_.at(token->second);
    }
    std::size_t unsettled() const {
      std::lock_guard lock(mutex_);
      return unsettled_locked();
    }
    std::size_t settled_twice() const {
      std::lock_guard lock(mutex_);
      return settled_twice_;
    }
    bool wait_all(std::chrono::milliseconds limit) const {
      std::unique_lock lock(mutex_);
      return changed_.wait_for(lock, limit, [&] { return unsettled_locked() == 0; });
    }

   private:
    std::size_t unsettled_locked() const {
      return static_cast<std::size_t>(
          std::count_if(settlements_.begin(), settlements_.end(),
                        [](const auto& entry) { return !entry.second.has_value(); }));
    }

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::uint64_t last_token_ = 0;
    std::map<std::string, std::uint64_t> tokens_;
    std::map<std::uint64_t, std::optional<Settlement>> settlements_;
    std::size_t settled_twice_ = 0;
  };

  std::shared_ptr<Record> record_ = std::make_shared<Record>();
};

// A sink that does what the test tells it. Each deliver() takes the next act of the script; when
// there is none, the standing one, which acknowledges everything unless otherwise() changed it.
//
//   ScriptedSink sink;
//   sink.then(ScriptedSink::retry_all("503 service unavailable"));   // the first batch
//   sink.then([](std::vector<Delivery> batch) { ... });              // the second
//                                                                    // acknowledged from then on
// Threads: any. Acts run outside the sink's lock.
class ScriptedSink : public Sink {
 public:
  using Act = std::function<void(std::vector<Delivery>)>;
  struct Attempt {
    std::string job_id;
    std::uint32_t attempt = 0;
    std::size_t batch = 0;       // 0 = the first deliver()
    std::size_t batch_size = 0;  // deliveries in it
    SteadyTime at;
  };

  static Act acknowledge_all() {
    return [](std::vector<Delivery> batch) {
      for (Delivery& delivery : batch) delivery.acknowledge();
    };
  }
  static Act retry_all(std::string reason,
                       std::optional<std::chrono::milliseconds> hint = std::nullopt) {
    return [reason = std::move(reason), hint](std::vector<Delivery> batch) {
      for (Delivery& delivery : batch) delivery.retry(reason, hint);
    };
  }
  static Act reject_all(std::string reason) {
    return [reason = std::move(reason)](std::vector<Delivery> batch) {
      for (Delivery& delivery : batch) delivery.reject(reason);
    };
  }
  // `each` settles one delivery, or leaves it to its destructor.
  static Act for_each(std::function<void(Delivery&)> each) {
    return [each = std::move(each)](std::vector<Delivery> batch) {
      for (Delivery& delivery : batch) each(delivery);
    };
  }

  void then(Act act) {
    std::lock_guard lock(mutex_);
    acts_.push_back(std::move(act));
  }
  void otherwise(Act act) {
    std::lock_guard lock(mutex_);
    standing_ = std::move(act);
  }

  void deliver(std::vector<Delivery> batch) override {
    Act act;
    {
      std::lock_guard lock(mutex_);
      for (const Delivery& delivery : batch) {
        attempts_.push_back({delivery.event().job.id, delivery.attempt(), batches_, batch.size(),
                             std::chrono::steady_clock::now()});
      }
      ++batches_;
      if (next_act_ < acts_.size()) {
        act = acts_[next_act_++];
      } else {
        act = standing_;
      }
      changed_.notify_all();
    }
    act(std::move(batch));
  }
  void stop(SteadyTime deadline) override {
    std::function<void(SteadyTime)> act;
    {
      std::lock_guard lock(mutex_);
      ++stops_;
      act = on_stop_;
      changed_.notify_all();
    }
    if (act) act(deadline);
  }
  void on_stop(std::function<void(SteadyTime)> act) {
    std::lock_guard lock(mutex_);
    on_stop_ = std::move(act);
  }

  std::vector<Attempt> attempts() const {
    std::lock_guard lock(mutex_);
    return attempts_;
  }
  std::vector<Attempt> attempts_of(const std::string& job_id) const {
    std::vector<Attempt> found;
    for (Attempt& attempt : attempts()) {
      if (attempt.job_id == job_id) found.push_back(std::move(attempt));
    }
    return found;
  }
  std::size_t batches() const {
    std::lock_guard lock(mutex_);
    return batches_;
  }
  std::size_t stops() const {
    std::lock_guard lock(mutex_);
    return stops_;
  }
  // Until deliver() was called `batches` times in all; false after `limit`.
  bool wait_batches(std::size_t batches,
                    std::chrono::milliseconds limit = std::chrono::seconds(20)) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return batches_ >= batches; });
  }
  bool wait_attempts(std::size_t attempts,
                     std::chrono::milliseconds limit = std::chrono::seconds(20)) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return attempts_.size() >= attempts; });
  }
  bool wait_stopped(std::chrono::milliseconds limit = std::chrono::seconds(20)) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return stops_ > 0; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Act> acts_;
  std::size_t next_act_ = 0;
  Act standing_ = acknowledge_all();
  std::function<void(SteadyTime)> on_stop_;
  std::vector<Attempt> attempts_;
  std::size_t batches_ = 0;
  std::size_t stops_ = 0;
};

}  // namespace scriptorium::test

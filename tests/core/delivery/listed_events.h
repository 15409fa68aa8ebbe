#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/api/sink.h"
#include "tests/support/event_factory.h"

namespace scriptorium::test {

// An archive of some events, in the order in which they are given.
class ListedEvents final : public Sink, public ReadableSink {
 public:
  explicit ListedEvents(std::vector<std::shared_ptr<const Event>> events)
      : events_(std::move(events)) {}
  void deliver(std::vector<Delivery> batch) override {
    for (Delivery& d : batch) d.acknowledge();
  }
  ReadableSink* readable() override { return this; }
  Result<std::shared_ptr<const Event>> fetch(const Event& locator) override {
    for (const auto& event : events_) {
      if (event->id == locator.id) return event;
    }
    return Error{ErrorKind::kVanished, "not there"};
  }
  Result<Page> list(const Query& /*query*/, const std::string& after, std::size_t limit) override {
    std::size_t next = after.empty() ? 0 : std::stoul(after);
    Page page;
    for (; next < events_.size() && page.events.size() < limit; ++next)
      page.events.push_back(std::make_shared<const Event>(without_bytes(*events_[next])));
    page.position = std::to_string(next);
    page.end = next == events_.size();
    return page;
  }

 private:
  const std::vector<std::shared_ptr<const Event>> events_;
};

}  // namespace scriptorium::test

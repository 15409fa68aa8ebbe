#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/elasticsearch/config.h"
#include "core/base/time.h"

namespace scriptorium::elasticsearch {

// Holds events back whose index template the server lacks: it would index them wrongly. Decides
// only; the caller asks the server. Without require_template nothing is held back. Not thread-safe.
class TemplateGate {
 public:
  enum class State { kUnknown, kAsked, kPresent, kMissing };

  explicit TemplateGate(const ElasticsearchConfig& config) : config_(config) {}

  // A question has no answer yet, so nothing may be rendered.
  bool waiting() const;
  // The family whose template is to be asked for before an event of this kind may go.
  std::optional<std::string> to_ask(std::string_view kind, SteadyTime now) const;
  // An event of this kind must wait, as its template is missing.
  bool holds(std::string_view kind) const;

  // `host` is the one that is asked.
  void asked(const std::string& family, std::size_t host, SteadyTime now);
  void answered(const std::string& family, State state) { templates_[family].state = state; }
  std::size_t host_of(const std::string& family) const { return templates_.at(family).host; }
  // The questions under way will not be answered.
  void forget_questions();

  // The names of the index templates that are missing.
  std::vector<std::string> missing() const;

 private:
  struct Template {
    State state = State::kUnknown;
    std::optional<SteadyTime> asked_at;
    std::size_t host = 0;
  };

  const ElasticsearchConfig& config_;
  std::map<std::string, Template, std::less<>> templates_;  // by family
};

}  // namespace scriptorium::elasticsearch

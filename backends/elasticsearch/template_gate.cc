#include "backends/elasticsearch/template_gate.h"

#include <algorithm>

#include "backends/elasticsearch/index_name.h"
#include "backends/elasticsearch/setup.h"

namespace scriptorium::elasticsearch {
namespace {

using std::chrono::seconds;

// How soon the question is repeated: after the answer that there is no template, for an operator
// who has just run `scriptorium setup`; and after no answer.
constexpr seconds kAskMissingAgain{2};
constexpr seconds kAskAgain{30};

}  // namespace

bool TemplateGate::waiting() const {
  return config_.require_template && std::ranges::any_of(templates_, [](const auto& entry) {
           return entry.second.state == State::kAsked;
         });
}

std::optional<std::string> TemplateGate::to_ask(std::string_view kind, SteadyTime now) const {
  if (!config_.require_template) return std::nullopt;
  std::string family(family_of(kind));
  if (const auto shipped = families(config_); std::ranges::find(shipped, family) == shipped.end()) {
    // Not a family of ours: whatever its owner made for it.
    if (config_.index_name.has_family()) return std::nullopt;
    family = shipped.front();
  }
  const auto known = templates_.find(family);
  if (known == templates_.end() || !known->second.asked_at) return family;
  const Template& t = known->second;
  const seconds pause = t.state == State::kMissing ? kAskMissingAgain : kAskAgain;
  if (t.state == State::kPresent || now - *t.asked_at < pause) return std::nullopt;
  return family;
}

bool TemplateGate::holds(std::string_view kind) const {
  if (!config_.require_template) return false;
  const auto known = templates_.find(config_.index_name.has_family() ? std::string(family_of(kind))
                                                                     : families(config_).front());
  return known != templates_.end() && known->second.state == State::kMissing;
}

void TemplateGate::asked(const std::string& family, std::size_t host, SteadyTime now) {
  templates_[family] = {.state = State::kAsked, .asked_at = now, .host = host};
}

void TemplateGate::forget_questions() {
  for (auto& [family, known] : templates_) {
    if (known.state == State::kAsked) known.state = State::kUnknown;
  }
}

std::vector<std::string> TemplateGate::missing() const {
  std::vector<std::string> names;
  for (const auto& [family, known] : templates_) {
    if (known.state == State::kMissing) names.push_back(config_.index_name.template_name(family));
  }
  return names;
}

}  // namespace scriptorium::elasticsearch

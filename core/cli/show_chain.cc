#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/cli/show_text.h"
#include "core/query/unchecked_json.h"

namespace scriptorium::cli {
namespace {

using EventPointer = std::shared_ptr<const Event>;

constexpr const char* kCheckpoint = "checkpoint";  // the event's member, not the plugin's name
// A program that is saved every ten minutes for a week has a thousand.
constexpr std::size_t kMostLines = 40;

std::optional<double> number_of(const Json& event, const char* name) {
  return query::measured_at(event, {kCheckpoint, name});
}

std::string step_text(const Event& event) {
  const Json json = Json::parse(event.extra_json, nullptr, false);
  const std::string action = query::text_at(json, {kCheckpoint, "action"}, 40);
  const std::string reason = query::text_at(json, {kCheckpoint, "reason"}, 40);
  const std::string place = event.host.empty() ? "" : " on " + printable(event.host);
  std::string facts;
  const auto add = [&facts](const std::string& fact) {
    facts += (facts.empty() ? ": " : ", ") + fact;
  };
  if (const auto bytes = number_of(json, "image_bytes"))
    add(format_bytes(static_cast<std::uint64_t>(*bytes)));
  if (const auto frozen = number_of(json, "frozen_seconds"))
    add("frozen for " + format_seconds(*frozen));
  if (!reason.empty()) add(reason);
  if (const auto code = number_of(json, "exit_code"))
    add("exit code " + std::to_string(static_cast<int>(*code)));
  const std::string what = action == "made"             ? "saved"
                           : action == "failed"         ? "not saved"
                           : action == "restarted"      ? "resumed"
                           : action == "restart_failed" ? "not resumed"
                                                        : action;
  return what + place + facts;
}

}  // namespace

std::string chain_text(const Searchable::Record& record, const Console& console) {
  std::vector<EventPointer> steps;
  std::ranges::copy_if(record.later, std::back_inserter(steps),
                       [](const EventPointer& event) { return event->kind == "job.checkpoint"; });
  std::ranges::stable_sort(steps, {}, [](const EventPointer& event) { return event->time; });
  std::string text;
  const auto add = [&text](const std::string& line) {
    text += "  " + padded(text.empty() ? kCheckpoint : "", 12) + line + "\n";
  };
  std::size_t first = 0;
  if (steps.size() > kMostLines) {
    first = steps.size() - kMostLines;
    add(std::to_string(first) + " earlier ones are left out; --json has them");
  }
  for (; first < steps.size(); ++first) {
    const Event& step = *steps[first];
    add(local_text(step.time) + "  " + step_text(step) +
        (step.user.verified ? "" : console.yellow(" (unverified)")));
  }
  return text;
}

}  // namespace scriptorium::cli

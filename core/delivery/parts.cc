#include "core/delivery/parts.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace scriptorium::delivery {
namespace {

bool gets(const SinkConfig& sink, std::string_view part) {
  return std::ranges::find(sink.parts, part) != sink.parts.end();
}

std::string_view part_of(const EventFile& file) {
  return file.name == kScriptPart || file.name == kEnvironmentPart ? std::string_view(file.name)
                                                                   : kRecordsPart;
}

}  // namespace

bool gets_whole_events(const SinkConfig& sink) {
  return std::ranges::all_of(kEventParts, [&](std::string_view part) { return gets(sink, part); });
}

std::shared_ptr<const Event> select_parts(std::shared_ptr<const Event> event,
                                          const SinkConfig& sink) {
  const auto is_withheld = [&](const EventFile& file) { return !gets(sink, part_of(file)); };
  if (event == nullptr || std::ranges::none_of(event->files, is_withheld)) return event;
  auto copy = std::make_shared<Event>(*event);
  std::erase_if(copy->files, is_withheld);
  if (copy->file(kEnvironmentPart) == nullptr) copy->environment_format = EnvironmentFormat::kNone;
  for (const std::string_view part : kEventParts) {
    if (gets(sink, part)) copy->parts.emplace_back(part);
  }
  return copy;
}

}  // namespace scriptorium::delivery

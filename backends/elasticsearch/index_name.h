#pragma once

#include <string>
#include <string_view>

#include "core/api/event.h"
#include "core/api/kit/text_template.h"
#include "core/base/result.h"

namespace scriptorium::elasticsearch {

// The kind's first word: "job" of "job.script".
std::string_view family_of(std::string_view kind) noexcept;

// Where an event's document goes: a text with {family} {kind} {cluster} {scheduler} {year} {month}
// {day}, the date being that of the event's `time` in UTC, so that every attempt chooses the same
// index. Pure.
class IndexName {
 public:
  static constexpr std::string_view kDefault = "scriptorium-{family}-{year}.{month}";
  static constexpr std::string_view kDefaultStream = "scriptorium-stream-{family}";

  IndexName() = default;
  // kInvalidConfig for an unknown field, or a name that no server would take.
  static Result<IndexName> parse(std::string_view text);

  // What a field brings in is made fit: lower case, and '_' for what an index name cannot hold.
  std::string of(const Event& event) const;
  // The pattern of all indices of a family: "scriptorium-job-*". An empty family: of all families.
  std::string pattern(std::string_view family) const;
  // What the index template of that pattern is called: "scriptorium-job".
  std::string template_name(std::string_view family) const;
  bool has_family() const noexcept;
  bool has_date() const noexcept;

 private:
  TextTemplate template_;
};

}  // namespace scriptorium::elasticsearch

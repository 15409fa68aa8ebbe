#include "backends/kafka/text_template.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"

namespace scriptorium::kafka {
namespace {

std::string listed(std::span<const std::string_view> fields) {
  std::string text;
  for (const std::string_view field : fields)
    text.append(text.empty() ? "{" : " {").append(field).append("}");
  return text;
}

Error unknown_field(std::string_view name, std::span<const std::string_view> fields) {
  std::string text = "unknown field {" + printable(name, 40) + "}";
  const std::vector<std::string> names(fields.begin(), fields.end());
  if (const auto near = did_you_mean(name, names)) text += "; did you mean {" + *near + "}?";
  return Error{ErrorKind::kInvalidConfig, text + "; there are " + listed(fields)};
}

}  // namespace

Result<TextTemplate> TextTemplate::parse(std::string_view text,
                                         std::span<const std::string_view> fields) {
  TextTemplate made;
  std::string fixed;
  const auto end_fixed = [&] {
    if (!fixed.empty())
      made.parts_.push_back({.is_field = false, .text = std::exchange(fixed, {})});
  };
  while (!text.empty()) {
    if (text.starts_with("{{") || text.starts_with("}}")) {
      fixed += text.front();
      text.remove_prefix(2);
    } else if (text.front() == '}') {
      return Error{ErrorKind::kInvalidConfig,
                   "'}' without '{' before it; write }} for the brace itself"};
    } else if (text.front() == '{') {
      const std::size_t end = text.find('}');
      if (end == std::string_view::npos) {
        return Error{ErrorKind::kInvalidConfig,
                     "'{' without '}' after it; write {{ for the brace itself"};
      }
      const std::string_view name = text.substr(1, end - 1);
      if (std::ranges::find(fields, name) == fields.end()) return unknown_field(name, fields);
      end_fixed();
      made.parts_.push_back({.is_field = true, .text = std::string(name)});
      text.remove_prefix(end + 1);
    } else {
      fixed += text.front();
      text.remove_prefix(1);
    }
  }
  end_fixed();
  return made;
}

std::string TextTemplate::expand(
    const std::function<std::string(std::string_view field)>& value) const {
  std::string text;
  for (const Part& part : parts_) text += part.is_field ? value(part.text) : part.text;
  return text;
}

bool TextTemplate::uses(std::string_view field) const noexcept {
  return std::ranges::any_of(parts_,
                             [&](const Part& part) { return part.is_field && part.text == field; });
}

std::string TextTemplate::fixed_text() const {
  std::string text;
  for (const Part& part : parts_) text += part.is_field ? "" : part.text;
  return text;
}

}  // namespace scriptorium::kafka

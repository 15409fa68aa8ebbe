#include "core/api/kit/text_template.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"

namespace scriptorium {
namespace {

Error invalid(std::string why) { return Error{ErrorKind::kInvalidConfig, std::move(why)}; }

Error unknown_fields(const std::vector<std::string>& unknown,
                     std::span<const std::string_view> fields) {
  const std::vector<std::string> names(fields.begin(), fields.end());
  std::string text;
  const auto add = [&](const std::string& sentence) {
    text += (text.empty() ? "" : text.ends_with('?') ? " " : "; ") + sentence;
  };
  for (const std::string& name : unknown) {
    add("unknown field {" + printable(name, 64) + "}");
    if (const auto near = did_you_mean(name, names)) add("did you mean {" + *near + "}?");
  }
  add("the fields are");
  for (const std::string& name : names) text.append(" {").append(name).append("}");
  return invalid(std::move(text));
}

}  // namespace

Result<TextTemplate> TextTemplate::parse(std::string_view text,
                                         std::span<const std::string_view> fields) {
  TextTemplate made;
  std::string fixed;
  std::vector<std::string> unknown;
  const auto end_fixed = [&] {
    if (!fixed.empty()) made.parts_.push_back({.field = {}, .text = std::exchange(fixed, {})});
  };
  while (!text.empty()) {
    const bool brace = text.front() == '{' || text.front() == '}';
    if (brace && text.substr(1).starts_with(text.front())) {
      fixed += text.front();
      text.remove_prefix(2);
    } else if (text.front() == '}') {
      return invalid("'}' without '{' before it; write }} for the brace itself");
    } else if (text.front() == '{') {
      const std::size_t end = text.find('}');
      if (end == std::string_view::npos)
        return invalid("'{' without '}' after it; write {{ for the brace itself");
      const std::string name(text.substr(1, end - 1));
      if (std::ranges::find(fields, name) == fields.end()) unknown.push_back(name);
      end_fixed();
      made.parts_.push_back({.field = name, .text = {}});
      text.remove_prefix(end + 1);
    } else {
      fixed += text.front();
      text.remove_prefix(1);
    }
  }
  end_fixed();
  if (!unknown.empty()) return unknown_fields(unknown, fields);
  return made;
}

std::string TextTemplate::expand(
    const std::function<std::string(std::string_view field)>& value) const {
  std::string text;
  for (const Part& part : parts_) text += part.is_field() ? value(part.field) : part.text;
  return text;
}

std::size_t TextTemplate::count(std::string_view field) const noexcept {
  return static_cast<std::size_t>(std::ranges::count(parts_, field, &Part::field));
}

std::string TextTemplate::fixed_text() const {
  std::string text;
  for (const Part& part : parts_) text += part.text;
  return text;
}

}  // namespace scriptorium

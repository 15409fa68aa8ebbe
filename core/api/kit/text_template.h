#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace scriptorium {

// A text with fields in braces, such as "{cluster}/{job_id}". "{{" and "}}" mean the braces
// themselves. Pure.
class TextTemplate {
 public:
  struct Part {
    std::string field;  // "" = `text` as it is
    std::string text;
    bool is_field() const noexcept { return !field.empty(); }
  };

  TextTemplate() = default;

  // kInvalidConfig for a brace without its partner, and for unknown fields: all of them are named,
  // with the nearest of `fields` and then with the whole list.
  static Result<TextTemplate> parse(std::string_view text,
                                    std::span<const std::string_view> fields);

  // `value` is asked for each field in turn.
  std::string expand(const std::function<std::string(std::string_view field)>& value) const;

  // In order; no two texts follow one another.
  const std::vector<Part>& parts() const noexcept { return parts_; }
  std::size_t count(std::string_view field) const noexcept;
  bool uses(std::string_view field) const noexcept { return count(field) > 0; }
  bool empty() const noexcept { return parts_.empty(); }
  // The text between the fields.
  std::string fixed_text() const;

 private:
  std::vector<Part> parts_;
};

}  // namespace scriptorium

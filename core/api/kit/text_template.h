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

  // kInvalidConfig for an unmatched brace and for unknown fields. The message names all unknown
  // fields with the nearest known one, then lists `fields`.
  static Result<TextTemplate> parse(std::string_view text,
                                    std::span<const std::string_view> fields);

  // Calls `value` for each field in order.
  std::string expand(const std::function<std::string(std::string_view field)>& value) const;

  // In order; two texts are never adjacent.
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

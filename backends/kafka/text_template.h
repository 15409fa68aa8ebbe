#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace scriptorium::kafka {

// A text with fields in braces: "{cluster}/{job_id}". "{{" and "}}" stand for the braces
// themselves.
class TextTemplate {
 public:
  TextTemplate() = default;

  // kInvalidConfig, in words that help, for an unknown field or a brace without its partner.
  static Result<TextTemplate> parse(std::string_view text,
                                    std::span<const std::string_view> fields);

  // `value` is asked for each field in turn.
  std::string expand(const std::function<std::string(std::string_view field)>& value) const;

  bool uses(std::string_view field) const noexcept;
  bool empty() const noexcept { return parts_.empty(); }
  // The text between the fields.
  std::string fixed_text() const;

 private:
  struct Part {
    bool is_field = false;
    std::string text;
  };
  std::vector<Part> parts_;
};

}  // namespace scriptorium::kafka

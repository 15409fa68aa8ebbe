#include "core/cli/answer_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/text.h"
#include "core/cli/console.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {

using status_answer::Json;

std::string text_of(const Json& value) {
  if (value.is_string()) return printable(value.get<std::string>());
  if (value.is_number_float()) return std::to_string(value.get<double>());
  return value.is_null() ? "-" : printable(value.dump());
}

std::string bytes_of(const Json& value) {
  if (!value.is_number()) return "-";
  return format_bytes(static_cast<std::uint64_t>(std::max(0.0, value.get<double>())));
}

std::string seconds_of(const Json& value) {
  return value.is_number() ? format_seconds(value.get<double>()) : "-";
}

std::string whole(double number) { return std::to_string(std::llround(number)); }

std::string whole(const Json& value) { return whole(status_answer::number_of(value)); }

}  // namespace scriptorium::cli

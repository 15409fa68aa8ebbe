#include "core/cli/stored_job.h"

#include "core/base/text.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {

using status_answer::member;

std::optional<std::string> string_of(const Json& value) {
  return value.is_string() ? std::optional<std::string>{value.get<std::string>()} : std::nullopt;
}
std::string time_of(const StoredCapture& found) {
  return string_of(member(found.event, "time")).value_or("");
}

bool is_script(const StoredCapture& capture) {
  return string_of(member(capture.event, "kind")).value_or("job.script") == "job.script";
}

std::optional<std::string> script_of(const StoredCapture& found) {
  if (const StoredFile* file = found.file("script")) return *file->bytes;
  const Json& script = member(found.event, "script");
  auto text = string_of(member(script, "text"));
  if (text && string_of(member(script, "encoding")).value_or("utf-8") == "base64")
    return base64_decode(*text);
  return text;
}

std::optional<std::string> environment_of(const StoredCapture& found) {
  if (const StoredFile* file = found.file("environment")) return *file->bytes;
  const Json& variables = member(found.event, "environment");
  if (!variables.is_object()) return std::nullopt;
  std::string bytes;
  for (const auto& [name, value] : variables.items())
    bytes += name + "=" + string_of(value).value_or("") + '\0';
  return bytes;
}

}  // namespace scriptorium::cli

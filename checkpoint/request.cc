#include "checkpoint/request.h"

#include <algorithm>
#include <climits>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::checkpoint {
namespace {

constexpr std::size_t kMostIdCharacters = 40;

bool is_job_id(std::string_view text) {
  if (text.size() > kMostIdCharacters) return false;
  const auto underscore = text.find('_');
  if (underscore == std::string_view::npos) return is_all_digits(text);
  return is_all_digits(text.substr(0, underscore)) && is_all_digits(text.substr(underscore + 1));
}

Error malformed(std::string why) { return {ErrorKind::kPermanent, std::move(why)}; }

}  // namespace

std::optional<RequestName> parse_request_name(std::string_view file) {
  for (const auto& [ending, action] :
       {std::pair{std::string_view(".checkpoint"), Action::kCheckpoint},
        std::pair{std::string_view(".resume"), Action::kResume}}) {
    if (!file.ends_with(ending)) continue;
    const std::string_view id = file.substr(0, file.size() - ending.size());
    return RequestName{is_job_id(id) ? std::string(id) : std::string{}, action};
  }
  return std::nullopt;
}

Result<RequestBody> parse_request_body(Action action, std::string_view text) {
  if (text.size() > kMostRequestBytes) return malformed("the request is larger than 4 KiB");
  if (text.find('\0') != std::string_view::npos) return malformed("the request has a zero byte");
  text = trim_end(text, "\n");
  const auto newline = text.rfind('\n');
  const std::string_view last = newline == std::string_view::npos ? text : text.substr(newline + 1);
  RequestBody body{0, std::string(last)};
  for (std::string_view rest = text.substr(0, text.size() - last.size()); !rest.empty();) {
    const std::string_view option = take_until(rest, '\n');
    body.runs_on = body.runs_on || option == "runs_on";
    body.keeps_job = body.keeps_job || option == "keep_job";
    if (option.starts_with("keep "))
      body.keep =
          std::max<std::int64_t>(0, parse_number<std::int64_t>(option.substr(5)).value_or(0));
  }
  if (action == Action::kCheckpoint) {
    if (newline == std::string_view::npos)
      return malformed("the request needs two lines: the process and the directory");
    const auto pid = parse_number<pid_t>(trim(text.substr(0, text.find('\n'))));
    if (!pid || *pid <= 1) return malformed("the first line of the request is not a process id");
    body.pid = *pid;
  }
  if (!last.starts_with('/') || last.size() >= PATH_MAX)
    return malformed("the last line of the request is not an absolute path");
  return body;
}

bool looks_complete(Action action, std::string_view text) {
  return text.ends_with('\n') && parse_request_body(action, text).has_value();
}

}  // namespace scriptorium::checkpoint

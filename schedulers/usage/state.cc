#include "schedulers/usage/state.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "core/base/ascii.h"

namespace scriptorium::usage {
namespace {

constexpr std::string_view kHeader = "scriptorium-usage-state 1 ";

}  // namespace

std::string state_header(std::string_view boot_id) {
  return std::string(kHeader).append(boot_id).append("\n");
}

std::string state_line(const LifeState& life) { return "life " + life_record(life) + "\n"; }

std::string state_line(std::string_view record, bool written) {
  return std::string(written ? "told " : "ended ").append(record).append("\n");
}

Result<UniqueFd> lock_state(const std::string& state_file) {
  static_cast<void>(make_directories(std::filesystem::path(state_file).parent_path(), 0750));
  const std::string file = state_file + ".lock";
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return UniqueFd();
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  return Error{ErrorKind::kTransient,
               "another usage source works on " + state_file +
                   "; give each a state_file of its own (this one waits until it ends)"};
}

Result<StateContent> parse_state(std::string_view text) {
  if (!text.starts_with(kHeader)) {
    return Error{
        ErrorKind::kCorrupt,
        "it does not begin with \"" + std::string(kHeader.substr(0, kHeader.size() - 1)) + "\""};
  }
  StateContent content;
  content.boot_id = take_until(text, '\n').substr(kHeader.size());
  while (!text.empty()) {
    std::string_view record = take_until(text, '\n');
    if (record.empty()) continue;
    const std::string_view kind = take_until(record, ' ');
    if (kind == "life") {
      if (auto life = parse_life(record)) {
        content.lives.push_back(*std::move(life));
        continue;
      }
    } else if (kind == "ended" || kind == "told") {
      if (auto node = parse_node(record)) {
        content.ended.push_back({*std::move(node), kind == "told"});
        continue;
      }
    }
    ++content.damaged;
  }
  return content;
}

}  // namespace scriptorium::usage

#include "checkpoint/migrate/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace scriptorium::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr std::uint64_t kMostState = 64U << 10;
constexpr std::string_view kMovePrefix = "job-";

std::string file_of(const std::string& folder, const std::string& name) {
  return folder + "/" + name + ".json";
}

Result<Json> parse_state(std::string_view text) try {
  Json json = Json::parse(text);
  if (json.at("format").get<int>() != kFormat) {
    return Error{
        ErrorKind::kCorrupt,
        "it was written by another version of scriptorium-migrate; use that, or remove it"};
  }
  return json;
} catch (const Json::exception& e) {
  return Error{ErrorKind::kCorrupt, e.what()};
}

Result<std::optional<std::string>> read_state(const std::string& file) {
  auto text = read_file(file, kMostState);
  if (text) return std::optional(*std::move(text));
  if (text.error().kind() == ErrorKind::kVanished) return std::optional<std::string>{};
  return text.error();
}

}  // namespace

std::string move_state_text(const MoveState& state) {
  const Json json{{"format", kFormat},
                  {"job", state.job},
                  {"display_id", state.display_id},
                  {"uid", state.uid},
                  {"from", state.from},
                  {"to", state.to},
                  {"drained", state.drained},
                  {"restarts", state.restarts},
                  {"lost_seconds", state.lost_seconds},
                  {"method", static_cast<int>(state.method)},
                  {"stage", static_cast<int>(state.stage)},
                  {"begun", state.begun.nanoseconds},
                  {"stage_begun", state.stage_begun.nanoseconds},
                  {"excluded_nodes", state.excluded_nodes},
                  {"required_nodes", state.required_nodes},
                  {"priority", state.priority},
                  {"has_temporary_changes", state.has_temporary_changes}};
  return json.dump(1) + "\n";
}

Result<MoveState> parse_move_state(std::string_view text) try {
  const auto json = parse_state(text);
  if (!json) return json.error();
  const int method = json->at("method").get<int>();
  const int stage = json->at("stage").get<int>();
  if (method < 0 || method > static_cast<int>(MoveMethod::kRequeue) || stage < 0 ||
      stage > static_cast<int>(MoveStage::kEnded))
    return Error{ErrorKind::kCorrupt, "a step is not known"};
  MoveState state;
  state.job = json->at("job").get<std::string>();
  state.display_id = json->at("display_id").get<std::string>();
  state.uid = json->at("uid").get<uid_t>();
  state.from = json->at("from").get<std::string>();
  state.to = json->at("to").get<std::string>();
  state.drained = json->at("drained").get<std::string>();
  state.restarts = json->at("restarts").get<int>();
  state.lost_seconds = json->at("lost_seconds").get<std::int64_t>();
  state.method = static_cast<MoveMethod>(method);
  state.stage = static_cast<MoveStage>(stage);
  state.begun.nanoseconds = json->at("begun").get<std::int64_t>();
  state.stage_begun.nanoseconds = json->at("stage_begun").get<std::int64_t>();
  state.excluded_nodes = json->at("excluded_nodes").get<std::string>();
  state.required_nodes = json->at("required_nodes").get<std::string>();
  state.priority = json->at("priority").get<std::string>();
  state.has_temporary_changes = json->at("has_temporary_changes").get<bool>();
  return state;
} catch (const Json::exception& e) {
  return Error{ErrorKind::kCorrupt, e.what()};
}

Result<StateFolder> StateFolder::open(const std::string& path) {
  if (path.empty()) {
    return Error{ErrorKind::kPermanent,
                 "there is no place for the state: set HOME or XDG_STATE_HOME"};
  }
  if (auto made = make_directories(path, 0700); !made) return made.error();
  return StateFolder(path);
}

Result<UniqueFd> StateFolder::lock(const std::string& name) const {
  const std::string file = path_ + "/." + name + ".lock";
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return Error{ErrorKind::kPermanent, system_error(file, errno).message()};
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{ErrorKind::kPermanent, "another scriptorium-migrate works on it at this time"};
  return fd;
}

Result<void> StateFolder::put(const MoveState& state) const {
  return replace_file(file_of(path_, "job-" + state.job), move_state_text(state), 0600);
}

Result<void> StateFolder::put(const DrainState& state) const {
  const Json json{{"format", kFormat}, {"node", state.node}, {"reason", state.reason}};
  return replace_file(file_of(path_, "node-" + state.node), json.dump(1) + "\n", 0600);
}

void StateFolder::remove_move(const std::string& job) const {
  ::unlink(file_of(path_, "job-" + job).c_str());
  ::unlink((path_ + "/.job-" + job + ".lock").c_str());
}

void StateFolder::remove_drain(const std::string& node) const {
  ::unlink(file_of(path_, "node-" + node).c_str());
}

Result<std::optional<MoveState>> StateFolder::move(const std::string& job) const {
  const std::string file = file_of(path_, "job-" + job);
  const auto text = read_state(file);
  if (!text) return text.error();
  if (!*text) return std::optional<MoveState>{};
  auto state = parse_move_state(**text);
  if (!state) return state.error().with_context(file);
  return std::optional(*std::move(state));
}

Result<std::optional<DrainState>> StateFolder::drain(const std::string& node) const try {
  const std::string file = file_of(path_, "node-" + node);
  const auto text = read_state(file);
  if (!text) return text.error();
  if (!*text) return std::optional<DrainState>{};
  const auto json = parse_state(**text);
  if (!json) return json.error().with_context(file);
  return std::optional(
      DrainState{json->at("node").get<std::string>(), json->at("reason").get<std::string>()});
} catch (const Json::exception& e) {
  return Error{ErrorKind::kCorrupt, e.what()};
}

std::vector<MoveState> StateFolder::moves() const {
  std::vector<MoveState> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().stem();
    if (entry->path().extension() != ".json" || !name.starts_with(kMovePrefix)) continue;
    const auto state = move(name.substr(kMovePrefix.size()));
    if (state && *state) found.push_back(**state);
  }
  return found;
}

std::string state_folder_path(const std::string& xdg_state_home, const std::string& home,
                              bool is_root) {
  constexpr const char* kName = "/scriptorium-migrate";
  if (xdg_state_home.starts_with('/')) return xdg_state_home + kName;
  if (is_root) return std::string("/var/lib") + kName;
  return home.empty() ? std::string{} : home + "/.local/state" + kName;
}

}  // namespace scriptorium::checkpoint

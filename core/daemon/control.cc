#include "core/daemon/control.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "core/daemon/state_dir.h"
#include "core/daemon/status_json.h"
#include "core/plugin/call_within.h"

namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostLetters = 1000;
constexpr std::size_t kMostFound = 100;
constexpr std::chrono::seconds kArchivePatience{10};

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}
std::string refuse(const std::string& reason) { return dump({{"ok", false}, {"error", reason}}); }
// Events are sent as the text that they are: parsing them again would take time for every variable
// of a hostile environment.
std::string accept_text(const std::string& result) {
  return R"({"ok":true,"result":)" + result + "}";
}
std::string accept(Json result) { return dump({{"ok", true}, {"result", std::move(result)}}); }

Json letter_json(const Journal::DeadLetter& letter) {
  return {{"sink", letter.sink},
          {"event_id", letter.event_id},
          {"kind", letter.kind},
          {"cluster", letter.cluster},
          {"job_id", letter.job_id},
          {"reason", letter.reason},
          {"attempts", letter.attempts},
          {"first_attempt", format_rfc3339(letter.first_attempt, TimePrecision::kMilliseconds)},
          {"last_attempt", format_rfc3339(letter.last_attempt, TimePrecision::kMilliseconds)},
          {"bytes", letter.bytes}};
}

Json sink_json(const Journal::SinkState& state) {
  const auto age = [](Timestamp time) {
    return static_cast<double>(system_clock().now().nanoseconds - time.nanoseconds) / 1e9;
  };
  return {{"sink", state.name},
          {"registered", state.registered},
          {"waiting", state.waiting},
          {"waiting_bytes", state.waiting_bytes},
          {"refill_from_archive", state.in_archive},
          {"dead", state.dead},
          {"acknowledged", state.acknowledged},
          {"oldest_waiting_seconds",
           state.oldest_waiting ? Json(age(*state.oldest_waiting)) : Json(nullptr)},
          {"last_success", state.last_success ? Json(format_rfc3339(*state.last_success,
                                                                    TimePrecision::kMilliseconds))
                                              : Json(nullptr)}};
}

std::optional<std::string> sink_of(const Json& request) {
  if (!request.contains("sink") || request.at("sink").is_null()) return std::nullopt;
  return request.at("sink").get<std::string>();
}

std::string list_letters(Journal& journal, const Json& request) {
  auto letters = journal.dead_letters(sink_of(request), request.value("limit", kMostLetters));
  if (!letters) return refuse(letters.error().message());
  Json list = Json::array();
  for (const auto& letter : *letters) list.push_back(letter_json(letter));
  return accept(std::move(list));
}

std::string show_letter(Journal& journal, const Json& request) {
  const std::string id = request.at("event_id").get<std::string>();
  auto letters = journal.dead_letters(std::nullopt, std::numeric_limits<std::int64_t>::max());
  if (!letters) return refuse(letters.error().message());
  Json found = Json::array();
  std::string whole_id;
  for (const auto& letter : *letters) {
    if (id.empty() || !letter.event_id.starts_with(id)) continue;
    if (!whole_id.empty() && whole_id != letter.event_id)
      return refuse("more than one dead letter begins with " + id + "; give more digits");
    whole_id = letter.event_id;
    found.push_back(letter_json(letter));
  }
  if (whole_id.empty()) return refuse("no dead letter has the event id " + id);
  // It may be in an archive that hangs, and the next request must be answered nevertheless.
  const auto answer =
      call_within(kArchivePatience, [&journal, whole_id] { return journal.event(whole_id); });
  if (!answer) return refuse("the archive that holds the event does not answer");
  if (!*answer) return refuse(answer->error().message());
  return accept_text(R"({"event":)" + event_json(***answer) + R"(,"letters":)" + dump(found) + "}");
}

std::string count_of(const Result<std::uint64_t>& count) {
  return count ? accept({{"count", *count}}) : refuse(count.error().message());
}

std::string list_sinks(Journal& journal) {
  Json list = Json::array();
  const auto fills = journal.fills();
  for (const Journal::SinkState& state : journal.usage().sinks) {
    list.push_back(sink_json(state));
    const auto fill = std::find_if(fills.begin(), fills.end(),
                                   [&](const auto& f) { return f.sink == state.name; });
    if (fill != fills.end()) list.back()["fill"] = Json::parse(fill_json(*fill));
  }
  return accept(std::move(list));
}

std::string forget_sink(Journal& journal, const Json& request) {
  const auto sink = sink_of(request);
  if (!sink) return refuse("\"sink\" is missing");
  Json removed{{"waiting", 0}, {"dead", 0}};
  for (const Journal::SinkState& state : journal.usage().sinks) {
    if (state.name == *sink) removed = {{"waiting", state.waiting}, {"dead", state.dead}};
  }
  if (auto done = journal.remove_sink(*sink); !done) return refuse(done.error().message());
  return accept(std::move(removed));
}

std::string stop_fill(Journal& journal, const Json& request) {
  const auto sink = sink_of(request);
  if (!sink) return refuse("\"sink\" is missing");
  for (Journal::Fill fill : journal.fills()) {
    if (fill.sink != *sink || !fill.is_under_way()) continue;
    fill.state = Journal::Fill::State::kStopped;
    if (auto stored = journal.set_fill(fill); !stored) return refuse(stored.error().message());
    return accept(Json::parse(fill_json(fill)));
  }
  return refuse("sink " + printable(*sink) + " is not being filled");
}

std::string list_owners(Journal& journal, const Json& request) {
  auto waiting = journal.unverified("", Timestamp{std::numeric_limits<std::int64_t>::max()},
                                    request.value("limit", kMostLetters));
  if (!waiting) return refuse(waiting.error().message());
  std::sort(waiting->begin(), waiting->end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  Json list = Json::array();
  for (const Journal::Unverified& item : *waiting) {
    list.push_back({{"job_id", item.event->job.id},
                    {"event_id", item.event->id},
                    {"reason", item.event->user.unverified_reason.value_or("")},
                    {"noted_at", format_rfc3339(item.noted_at, TimePrecision::kSeconds)}});
  }
  return accept(std::move(list));
}

std::string find_job(Journal& journal, const Json& request) {
  auto events = journal.find(request.at("job").get<std::string>(), kMostFound);
  if (!events) return refuse(events.error().message());
  std::string list = "[";
  for (const auto& event : *events)
    list.append(list.size() > 1 ? "," : "").append(event_json(*event));
  return accept_text(list + "]");
}

std::string answer(Journal& journal, const Json& request) {
  const std::string command = request.at("command").get<std::string>();
  if (command == "deadletters.list") return list_letters(journal, request);
  if (command == "deadletters.show") return show_letter(journal, request);
  if (command == "deadletters.retry")
    return count_of(
        journal.retry_dead(sink_of(request), request.at("event_id").get<std::string>()));
  if (command == "deadletters.discard")
    return count_of(
        journal.discard_dead(sink_of(request), request.at("event_id").get<std::string>()));
  if (command == "sinks.list") return list_sinks(journal);
  if (command == "sinks.forget") return forget_sink(journal, request);
  if (command == "sinks.fill.stop") return stop_fill(journal, request);
  if (command == "owners.list") return list_owners(journal, request);
  if (command == "find") return find_job(journal, request);
  return refuse("unknown command: " + command);
}

// One request to a running daemon; nothing if none listens.
Result<std::optional<std::string>> ask_daemon(const std::string& state_dir,
                                              const std::string& request) {
  auto path = control_socket_path(state_dir);
  if (!path) return path.error();
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path->c_str(), path->size() + 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return std::optional<std::string>{};
    if (errno == EACCES)
      return Error{ErrorKind::kTransient,
                   *path + ": permission denied; ask as the daemon's user or as root"};
    return system_error("connect " + *path, errno);
  }
  constexpr timeval kPatience{.tv_sec = 60, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  const std::string line = request + "\n";
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size()))
    return system_error("send to " + *path, errno);
  std::string answer;
  std::array<char, 65536> buffer{};
  for (;;) {
    const ssize_t n = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Error{ErrorKind::kTransient, "the daemon on " + state_dir + " does not answer"};
    if (n == 0) break;
    answer.append(buffer.data(), static_cast<std::size_t>(n));
  }
  if (answer.empty())
    return Error{ErrorKind::kTransient,
                 "the daemon on " + state_dir + " ended the connection without an answer"};
  return std::optional<std::string>{std::move(answer)};
}

Result<std::string> result_of(const std::string& text) try {
  constexpr std::string_view kGood = R"({"ok":true,"result":)";
  std::string_view answer = text;
  while (answer.ends_with('\n')) answer.remove_suffix(1);
  if (answer.starts_with(kGood) && answer.ends_with('}'))
    return std::string(answer.substr(kGood.size(), answer.size() - kGood.size() - 1));
  const Json json = Json::parse(answer);
  if (json.at("ok").get<bool>()) return dump(json.at("result"));
  return Error{ErrorKind::kPermanent, json.at("error").get<std::string>()};
} catch (const Json::exception&) {
  return Error{ErrorKind::kTransient,
               "the daemon's answer is not understood; is it of another version?"};
}

}  // namespace

std::string answer_from_journal(Journal& journal, const std::string& request_json) try {
  return answer(journal, Json::parse(request_json));
} catch (const Json::exception& e) {
  return refuse(std::string("the request is not understood: ") + e.what());
}

Result<std::string> control_socket_path(const std::string& state_dir) {
  constexpr std::size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;
  std::string path = state_dir + "/control.sock";
  if (path.size() <= kMostBytes) return path;
  return Error{ErrorKind::kInvalidConfig, "state_dir: too long for the control socket: " + path +
                                              " has " + std::to_string(path.size()) + " bytes, " +
                                              std::to_string(kMostBytes) + " are possible"};
}

Result<std::unique_ptr<Listener>> serve_control(const std::string& state_dir, AnswerCommand answer,
                                                Logger& log) {
  auto path = control_socket_path(state_dir);
  if (!path) return path.error();
  std::vector<UniqueFd> sockets(1);
  auto socket = listen_unix(*path, 0600, "control socket");
  if (!socket) return socket.error();
  sockets.front() = *std::move(socket);
  Listener::Service service{
      .is_whole = [](std::string_view received) { return received.find('\n') != received.npos; },
      .answer =
          [answer = std::move(answer)](const std::string& request) {
            return answer(request.substr(0, request.find('\n'))) + "\n";
          },
      .failure_id = "CONTROL_FAILED",
      .failure_text = "a command could not be answered"};
  auto listener = std::make_unique<Listener>(std::move(sockets), std::move(service), log);
  listener->start();
  return listener;
}

Result<std::string> control(const std::string& state_dir, const std::string& request_json,
                            Logger& log) {
  auto answered = ask_daemon(state_dir, request_json);
  if (!answered) return answered.error();
  if (*answered) return result_of(**answered);

  const Json request = Json::parse(request_json, nullptr, false);
  const std::string command = request.is_object() ? request.value("command", "") : "";
  if (command == "status" || command == "ping" || command == "sinks.fill" ||
      command == "owners.retry" || command == "owners.status")
    return Error{ErrorKind::kTransient, "no daemon runs on " + state_dir};
  if (!stat_path(state_dir + "/journal.db"))
    return Error{ErrorKind::kTransient,
                 state_dir + ": there is no journal yet, and no daemon runs"};
  auto lock = lock_state_dir(state_dir);
  if (!lock) return lock.error();
  auto journal = Journal::open({.directory = state_dir}, log, system_clock());
  if (!journal) return journal.error();
  return result_of(answer_from_journal(**journal, request_json));
}

}  // namespace scriptorium

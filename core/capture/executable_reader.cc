#include "core/capture/executable_reader.h"

#include <linux/capability.h>
#include <sys/socket.h>

#include <utility>

#include "core/capture/opener_protocol.h"

namespace scriptorium {
namespace {

// Answers of processes that ended before they were fetched are among them.
constexpr std::size_t kMostAsked = 4096;

}  // namespace

const CapabilitySet kExecutableCapabilities = capability_bit(CAP_SYS_PTRACE);

std::string to_packet(const ExecutableAnswer& answer) {
  std::string packet;
  opener::append(packet, answer.process);
  for (const std::string* text :
       {&answer.executable.command, &answer.executable.path, &answer.executable.build_id})
    opener::append_text(packet, *text);
  return packet;
}

std::optional<ExecutableAnswer> parse_executable_answer(std::string_view packet) {
  ExecutableAnswer answer;
  if (!opener::take(packet, answer.process) ||
      !opener::take_text(packet, answer.executable.command) ||
      !opener::take_text(packet, answer.executable.path) ||
      !opener::take_text(packet, answer.executable.build_id) || !packet.empty())
    return std::nullopt;
  return answer;
}

Result<std::unique_ptr<ExecutableReader>> ExecutableReader::start(
    CapabilitySet keep, std::chrono::milliseconds deadline) {
  auto process = HelperProcess::start(
      {.name = "exe-reader",
       .keep = keep,
       .deny_system_calls = true,
       .serve = [deadline](int socket) { serve_executables(socket, deadline); }});
  if (!process) return process.error();
  return std::make_unique<ExecutableReader>(*std::move(process));
}

std::optional<Executable> ExecutableReader::find(std::uint32_t pid, std::uint64_t start_ticks) {
  const ProcessKey process{.pid = pid, .start_ticks = start_ticks};
  const std::lock_guard lock(mutex_);
  receive();
  const auto found = asked_.find(process);
  if (found == asked_.end()) {
    ask(process);
    return std::nullopt;
  }
  std::optional<Executable> answer = std::move(found->second);
  if (answer) asked_.erase(found);
  return answer;
}

// All answers that have arrived.
void ExecutableReader::receive() {
  ssize_t bytes = 0;
  while ((bytes = ::recv(process_.socket(), buffer_.data(), buffer_.size(), MSG_DONTWAIT)) > 0) {
    auto answer = parse_executable_answer(
        std::string_view(buffer_).substr(0, static_cast<std::size_t>(bytes)));
    if (!answer) continue;
    const auto found = asked_.find(answer->process);
    if (found != asked_.end()) found->second = std::move(answer->executable);
  }
}

void ExecutableReader::ask(const ProcessKey& process) {
  if (asked_.size() >= kMostAsked)
    std::erase_if(asked_, [](const auto& one) { return one.second.has_value(); });
  if (asked_.size() >= kMostAsked) return;
  // Fails while the reader has enough to do: it then reads no more.
  if (::send(process_.socket(), &process, sizeof process, MSG_DONTWAIT | MSG_NOSIGNAL) ==
      sizeof process)
    asked_.emplace(process, std::nullopt);
}

}  // namespace scriptorium

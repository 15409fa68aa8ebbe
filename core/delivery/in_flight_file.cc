#include "core/delivery/in_flight_file.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <utility>

#include "core/base/file.h"

namespace scriptorium::in_flight {
namespace {

constexpr std::size_t kHeaderBytes = 128;
// Up to this size header and body go out in one write(), which a dying process does whole or not at
// all.
constexpr std::size_t kAtomicBytes = 1024;
constexpr std::uint64_t kMostFileBytes = 64U << 20;

std::uint64_t checksum(std::string_view bytes) {  // FNV-1a
  std::uint64_t sum = 0xcbf29ce484222325U;
  for (const char c : bytes) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return sum;
}

std::array<char, kHeaderBytes> header(State state, std::string_view body) {
  std::array<char, kHeaderBytes> bytes{};
  std::snprintf(bytes.data(), bytes.size(), "in-flight 1 %d %zu %llu", static_cast<int>(state),
                body.size(), static_cast<unsigned long long>(checksum(body)));
  std::replace(bytes.begin(), bytes.end(), '\0', ' ');
  bytes.back() = '\n';
  return bytes;
}

bool write_at(int fd, std::string_view bytes, off_t offset) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
    offset += n;
  }
  return true;
}

}  // namespace

bool write(int fd, State state, std::string_view sink, std::span<const std::string> event_ids) {
  std::string body(sink);
  body.append("\n");
  for (const std::string& id : event_ids) body.append(id).append("\n");
  const auto head = header(state, body);
  if (body.size() <= kAtomicBytes)
    return write_at(fd, std::string(head.data(), head.size()) + body, 0);
  // The header last, since it makes the body count.
  return write_at(fd, body, kHeaderBytes) && write_at(fd, {head.data(), head.size()}, 0);
}

bool clear(int fd) noexcept {
  const auto head = header(State::kNothing, {});
  return write_at(fd, {head.data(), head.size()}, 0) || ::ftruncate(fd, 0) == 0;
}

std::optional<Record> read(const std::string& path) {
  auto bytes = read_file(path, kMostFileBytes);
  if (!bytes || bytes->size() < kHeaderBytes) return std::nullopt;
  std::istringstream head(bytes->substr(0, kHeaderBytes));
  std::string magic;
  std::string version;
  int state = 0;
  std::size_t size = 0;
  unsigned long long sum = 0;
  if (!(head >> magic >> version >> state >> size >> sum)) return std::nullopt;
  if (magic != "in-flight" || version != "1" || (state != 1 && state != 2)) return std::nullopt;
  if (bytes->size() < kHeaderBytes + size) return std::nullopt;
  const std::string body = bytes->substr(kHeaderBytes, size);
  if (checksum(body) != sum) return std::nullopt;
  Record record{.state = static_cast<State>(state)};
  std::istringstream lines(body);
  std::getline(lines, record.sink);
  for (std::string id; std::getline(lines, id);) record.event_ids.push_back(std::move(id));
  return record;
}

}  // namespace scriptorium::in_flight

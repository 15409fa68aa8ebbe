#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// A file of STATE_DIR/in-flight: the batch that a plugin has in hand, for the next process on this
// machine. Format, version 1:
//   128 bytes: "in-flight 1 STATE SIZE CHECKSUM", padded with blanks, ended by a newline
//   SIZE bytes: the sink's name and each event id, a line each
// STATE is 0 nothing, 1 a batch, 2 a suspect; CHECKSUM is FNV-1a of the SIZE bytes. What does not
// match, such as a file that a power cut has torn, says nothing.
namespace scriptorium::in_flight {

enum class State { kNothing = 0, kBatch = 1, kSuspect = 2 };

struct Record {
  State state = State::kNothing;
  std::string sink;
  std::vector<std::string> event_ids;
};

// False: errno says why. A crash of the process in between leaves the file as it was, or says
// nothing.
bool write(int fd, State state, std::string_view sink, std::span<const std::string> event_ids);
// Says that nothing is in hand. False: errno says why.
bool clear(int fd) noexcept;
// Nothing: the file has no batch, or is damaged.
std::optional<Record> read(const std::string& path);

}  // namespace scriptorium::in_flight

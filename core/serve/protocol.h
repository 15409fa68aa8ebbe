#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/searchable.h"
#include "core/base/result.h"
#include "core/base/time.h"

// What a command and the query service say to each other over a Unix socket. A message is a CBOR
// map (RFC 8949), sent in one or more frames: four bytes with the frame's length, the highest bit
// set if more frames of the message follow, most significant byte first, then so many bytes.
//
// The service begins with kHello. The client sends an Ask, and gets any number of kItems and one
// kEnd, or kError; then it may send the next. Visibility is not part of an Ask: the service decides
// by the peer's uid.
namespace scriptorium::serve {

// Raised with each change that an older peer would misread.
inline constexpr std::uint32_t kProtocol = 2;
inline constexpr std::size_t kMostAskBytes = std::size_t{64} << 10;  // of the one frame of an Ask
inline constexpr std::size_t kMostFrameBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMostMessageBytes = std::size_t{64} << 20;
// Of one answer, except that to kRuns: its reader adds the runs up as they come.
inline constexpr std::size_t kMostAnswerBytes = std::size_t{256} << 20;

// What one Ask gets at most; Answer::next and Ask::before continue.
inline constexpr std::size_t kMostHits = 1'000;
inline constexpr std::size_t kMostRows = 1'000;
inline constexpr std::size_t kMostRecords = 100;
inline constexpr std::size_t kMostWastefulRuns = 100;

// A call of Searchable. Only the members of its kind are used.
struct Ask {
  enum class Call : std::uint8_t { kSearch, kGet, kFamily, kRuns };
  Call call = Call::kSearch;
  std::string store;  // the sink's name
  // kSearch; without deadline, stop, visibility and progress, which are not sent.
  Searchable::Request search;
  std::optional<double> seconds;  // kSearch, kRuns: until the client's deadline; absent: none
  Searchable::Selector selector;  // kGet
  std::uint64_t family = 0;       // kFamily
  std::optional<Timestamp> before;
  std::size_t limit = 0;        // kGet, kFamily
  Searchable::RunRequest runs;  // kRuns; only what is sent
};

// A message of the service.
struct Reply {
  enum class Kind : std::uint8_t { kHello, kItems, kEnd, kError };
  Kind kind = Kind::kHello;
  std::uint32_t protocol = kProtocol;  // kHello
  // kItems: those of the call.
  std::vector<Searchable::Hit> hits;
  std::vector<Searchable::Record> records;
  std::vector<JobRow> rows;
  std::vector<JobRun> runs;                 // with events only where most_wasteful is set
  Searchable::Answer answer;                // kEnd of kSearch: without hits; of kRuns: `finished`
  std::vector<std::string> problems;        // kEnd of kRuns
  ErrorKind error = ErrorKind::kTransient;  // kError
  std::string message;                      // kError
};

// The message that says why there is no answer.
Reply refusal(const Error& error);

// A message's bytes, without frames, and back. kPermanent for anything that encode() did not write;
// the bytes may come from anybody.
std::string encode(const Ask& ask);
std::string encode(const Reply& reply);
Result<Ask> decode_ask(std::string_view bytes);
Result<Reply> decode_reply(std::string_view bytes);

// The frames of a message, one after the other.
std::vector<std::string> frames_of(std::string_view message);

// Joins frames to messages. Bytes are added as they come.
class FrameReader {
 public:
  explicit FrameReader(std::size_t most_bytes) : most_bytes_(most_bytes) {}
  void add(std::string_view bytes) { received_.append(bytes); }
  // The next message if it is whole. kPermanent: it is longer than `most_bytes`, or not a message.
  Result<std::optional<std::string>> next();
  std::size_t size() const noexcept { return received_.size() + message_.size(); }
  bool is_empty() const noexcept { return size() == 0; }

 private:
  std::size_t most_bytes_;
  std::string received_;
  std::string message_;  // of the frames before
};

}  // namespace scriptorium::serve

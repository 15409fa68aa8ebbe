// What a peer sends: bytes that are not a message are an error, and what is one becomes the same
// again. A query that a peer makes up is evaluated as one that was parsed.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/api/kit/search/query_matcher.h"
#include "core/query/parse.h"
#include "core/serve/protocol.h"

namespace {

using namespace scriptorium;

void check_frames(std::string_view input) {
  serve::FrameReader reader(serve::kMostAskBytes);
  for (std::size_t at = 0; at < input.size(); at += 7) {
    reader.add(input.substr(at, 7));
    while (true) {
      const auto message = reader.next();
      if (!message) return;
      if (!*message) break;
      if ((*message)->size() > serve::kMostAskBytes) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_frames(input);
  if (const auto ask = serve::decode_ask(input)) {
    const std::string again = serve::encode(*ask);
    const auto same = serve::decode_ask(again);
    if (!same || serve::encode(*same) != again) std::abort();
    static_cast<void>(query::to_text(ask->search.query));
    if (const auto matcher = QueryMatcher::create(ask->search.query)) {
      JobRow job;
      job.user = "alice";
      static_cast<void>(
          matcher->matches(job, JobTexts{[](JobPart) { return std::string_view("#!/bin/sh"); }}));
    }
  }
  if (const auto reply = serve::decode_reply(input)) {
    const std::string again = serve::encode(*reply);
    const auto same = serve::decode_reply(again);
    if (!same || serve::encode(*same) != again) std::abort();
  }
  return 0;
}

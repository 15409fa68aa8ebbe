// A record of the checkpoint service: any bytes are refused, or become an event that is JSON and
// is read back as it was.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "schedulers/checkpoint/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // The service's, or one that any user wrote.
  const bool is_user = size > 0 && data[size - 1] % 2 == 0;
  auto event = is_user ? checkpoint_records::parse_user_record(bytes, "lab", {"alice", 1001, {1}})
                       : checkpoint_records::parse_record(bytes, "lab");
  if (!event) {
    if (event.error().kind() != ErrorKind::kPermanent) std::abort();
    return 0;
  }
  make_text_utf8(*event);
  const auto again = event_from_json(event_json(*event, {.exact_times = true}));
  if (!again || again->id != event->id || again->job.id != event->job.id ||
      again->time != event->time || again->extra_json.empty())
    std::abort();
  return 0;
}

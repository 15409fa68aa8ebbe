// What a server answers, or somebody in its place: nothing may crash, no document may be taken for
// stored that was not answered for, and no word of a script may get into a reason.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "backends/elasticsearch/outcome.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace scriptorium;
  using namespace scriptorium::elasticsearch;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const std::string kSecret = "export TOKEN=hunter2hunter2";
  static const Event kEvent = [] {
    Event event;
    event.files.push_back(
        {.name = "script", .size = kSecret.size(), .sha256 = {}, .bytes = make_bytes(kSecret)});
    return event;
  }();

  if (const auto items = parse_bulk_answer(bytes, {"a", "b"})) {
    if (items->size() != 2) std::abort();
    for (const Item& item : *items) {
      const ItemAction action = judge_item(item);
      if (action == ItemAction::kStored && item.status != 200 && item.status != 201) std::abort();
      if (action == ItemAction::kDuplicate && item.status != 409) std::abort();
      if (action == ItemAction::kReject && item.status != 400) std::abort();
    }
  }
  const ServerError error = parse_error(bytes);
  for (const long status : {200L, 400L, 401L, 413L, 503L})
    static_cast<void>(judge_request(status, error));
  static_cast<void>(parse_retry_after(bytes, 0));

  for (const std::string& told :
       {safe_reason(bytes, kEvent), safe_reason(std::string(bytes) + kSecret, kEvent),
        safe_reason(error.reason, kEvent)}) {
    if (told.size() > 210) std::abort();
    for (std::size_t i = 0; i + 12 <= kSecret.size(); ++i) {
      if (told.find(kSecret.substr(i, 12)) != std::string::npos) std::abort();
    }
  }
  return 0;
}

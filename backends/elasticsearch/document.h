#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/elasticsearch/config.h"
#include "core/api/event.h"

// Event to document. Pure: the same event and configuration give the same bytes at every attempt.
namespace scriptorium::elasticsearch {

// What had to be cut to make the document.
struct Cuts {
  bool script = false;
  bool environment = false;
};

// What becomes of the document that an event with `replaces` comes after.
enum class Replacing {
  kInPlace,  // it is overwritten: the new one goes under its id
  kBeside,  // it stays, and the new one is created under its own event's id: all that a data stream
            // takes, or a server that lets us create documents but not change them
};

// The `_id` that append_document() writes.
const std::string& document_id(const Event& event, Replacing replacing) noexcept;

// Appends the two lines of a bulk request to `body`: the action, and the document. The action is
//   create                 with the event's id; a second one is refused as a conflict
//   index                  with the id `replaces`, for an event that replaces another in place
//   update                 the same, if the event has lost the bytes of script or environment: only
//   what may have changed is
//                          merged into the document that is there; if there is none, it becomes
//                          what is left of the event
// and each may be repeated. The document is the event as schema 1 says, and
//   @timestamp             the event's time
//   script.text            at most script_max_bytes, cut at a character; not UTF-8: with U+FFFD
//   script.raw             base64 of the first script_max_bytes, only if the script is not UTF-8
//   (script.encoding "base64") script.truncated       true if text or raw is not the whole
//   environment            values of at most kVariableMaxBytes; no names that a server refuses
//   environment_truncated  true if a value was cut or a variable left out
//   labels                 those of the configuration, and an event's own, as texts
Cuts append_document(const Event& event, const ElasticsearchConfig& config, Replacing replacing,
                     std::string& body);

// The longest beginning of a UTF-8 text that has at most `limit` bytes and ends with a whole
// character.
std::string_view utf8_prefix(std::string_view text, std::size_t limit) noexcept;

}  // namespace scriptorium::elasticsearch

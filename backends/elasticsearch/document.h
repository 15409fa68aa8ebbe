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

// Appends the two lines of a bulk request to `body`: the action, which creates the document under the event's id, and the
// document itself: the event as schema 1 says, and
//   @timestamp             the event's time
//   script.text            at most script_max_bytes, cut at a character; not UTF-8: with U+FFFD
//   script.raw             base64 of the first script_max_bytes, only if the script is not UTF-8 (script.encoding "base64")
//   script.truncated       true if text or raw is not the whole
//   environment            values of at most kVariableMaxBytes; no names that a server refuses
//   environment_truncated  true if a value was cut or a variable left out
//   labels                 those of the configuration, and an event's own, as texts
Cuts append_document(const Event& event, const ElasticsearchConfig& config, std::string& body);

// The longest beginning of a UTF-8 text that has at most `limit` bytes and ends with a whole character.
std::string_view utf8_prefix(std::string_view text, std::size_t limit) noexcept;

}  // namespace scriptorium::elasticsearch

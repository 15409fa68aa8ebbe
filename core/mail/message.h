#pragma once

#include <string>
#include <string_view>

#include "core/base/time.h"

namespace scriptorium::mail {

// A mail with a plain and an HTML part (multipart/alternative, RFC 2046). Header texts may hold any
// bytes: control characters and those that change the direction of a text are dropped, so that no
// text can begin another header; ill-formed UTF-8 becomes U+FFFD.
struct Message {
  std::string from;     // "hpc-support@example.org", or "Support <hpc-support@example.org>"
  std::string to;       // an address
  std::string subject;  // UTF-8
  Timestamp date;
  UtcOffset zone = kUtc;  // of `date`
  std::string id;         // left of the @ of Message-ID; the same for a message that is sent again
  std::string domain;     // right of it, and of List-Id; "" = localhost
  std::string unsubscribe;  // the address of a person: List-Unsubscribe: <mailto:...>; "" = none
  std::string language;     // "de": Content-Language; "" = none
  std::string text;         // UTF-8
  std::string html;         // UTF-8
};

// As a mail program takes it: ASCII, lines that end with \n and are at most 78 characters long.
// Only a line with an address or an id that does not fit is longer, since those cannot be folded.
std::string message_text(const Message& message);

// [A-Za-z0-9._%+-]+(@[A-Za-z0-9.-]+)?, at most 254 bytes, not beginning with '-': what may be given
// to a mail program as an argument.
bool is_address(std::string_view text);

}  // namespace scriptorium::mail

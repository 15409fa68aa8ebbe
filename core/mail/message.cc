#include "core/mail/message.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/config/config.h"

namespace scriptorium::mail {
namespace {

constexpr std::size_t kMostInLine = 78;         // RFC 5322, 2.1.1
constexpr std::size_t kMostInEncodedWord = 75;  // RFC 2047, 2
constexpr std::string_view kWordBegin = "=?utf-8?B?";
constexpr std::string_view kWordEnd = "?=";

bool is_printable_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// What remains of a text in a place that has no encoding: an address, an id, a domain.
std::string plain(std::string_view text) {
  std::string result;
  std::copy_if(text.begin(), text.end(), std::back_inserter(result), [](char c) {
    return is_alphanumeric(c) || std::string_view("._%+-@").find(c) != std::string_view::npos;
  });
  return result;
}

// RFC 2047 words, one a line; `column` is where the first one begins. No word ends within a
// character.
std::string encoded_words(std::string_view text, std::size_t column) {
  std::string result;
  while (!text.empty()) {
    const std::size_t room =
        std::min(kMostInEncodedWord, kMostInLine - column) - kWordBegin.size() - kWordEnd.size();
    std::size_t length = std::min(room / 4 * 3, text.size());
    while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U)
      --length;
    if (!result.empty()) result += "\n ";
    result.append(kWordBegin).append(base64_encode(text.substr(0, length))).append(kWordEnd);
    text.remove_prefix(length);
    column = 1;
  }
  return result;
}

// The text with line breaks before blanks, so that no line is longer than allowed; nothing if there
// is no such way that leaves the text as it is.
std::optional<std::string> folded(std::string_view text, std::size_t column) {
  if (text.starts_with(' ') || text.ends_with(' ') || text.find("  ") != std::string_view::npos)
    return std::nullopt;
  std::string result;
  while (!text.empty()) {
    const std::size_t blank = text.find(' ', 1);  // a word has the blank before it
    const std::string_view word = text.substr(0, blank);
    if (column + word.size() > kMostInLine) {
      if (result.empty() || word.size() > kMostInLine) return std::nullopt;
      result += '\n';
      column = 0;
    }
    result += word;
    column += word.size();
    text.remove_prefix(word.size());
  }
  return result;
}

std::string header_text(std::string_view any_bytes, std::size_t column) {
  const std::string text = without_controls(any_bytes);
  if (is_printable_ascii(text) && text.find("=?") == std::string::npos) {
    if (auto result = folded(text, column)) return *std::move(result);
  }
  return encoded_words(text, column);
}

// "Support <a@b>": the words before the address may need quotes or encoding.
std::string from_text(std::string_view from, std::size_t column) {
  const std::size_t open = from.ends_with('>') ? from.rfind('<') : std::string_view::npos;
  if (open == std::string_view::npos) return plain(from);
  std::string address = "<" + plain(from.substr(open)) + ">";
  const std::string name = without_controls(trim(from.substr(0, open)));
  if (name.empty()) return address;
  const bool is_word = std::all_of(name.begin(), name.end(), [](char c) {
    return is_alphanumeric(c) ||
           std::string_view(" !#$%&'*+-/=?^_`{|}~").find(c) != std::string::npos;
  });
  std::string result = is_word ? header_text(name, column) : encoded_words(name, column);
  const std::size_t last_line = result.rfind('\n');
  const std::size_t used =
      last_line == std::string::npos ? column + result.size() : result.size() - last_line - 1;
  return result + (used + 1 + address.size() > kMostInLine ? "\n " : " ") + address;
}

// RFC 5322, 3.3: "Mon, 16 Nov 2026 09:00:00 +0100".
std::string date_text(Timestamp time, UtcOffset zone) {
  using namespace std::chrono;
  constexpr std::array kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                               "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::int64_t minutes_ahead = zone(time) / 60;
  const sys_seconds shown{floor<seconds>(nanoseconds(time.nanoseconds)) + minutes(minutes_ahead)};
  const auto day = floor<days>(shown);
  const year_month_day date(day);
  const hh_mm_ss clock(shown - day);
  const auto ahead = static_cast<int>(std::abs(minutes_ahead));
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s, %02u %s %04d %02d:%02d:%02d %c%02d%02d",
                kDays.at(weekday(day).c_encoding()), static_cast<unsigned>(date.day()),
                kMonths.at(static_cast<unsigned>(date.month()) - 1), static_cast<int>(date.year()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()), minutes_ahead < 0 ? '-' : '+',
                ahead / 60, ahead % 60);
  return text.data();
}

// Base64, so that no line of a text is too long, is a single dot or begins with "From ".
std::string part(std::string_view type, std::string_view any_bytes) {
  constexpr std::size_t kMostInBase64Line = 76;  // RFC 2045, 6.8
  std::string lines;  // a text's lines end with \r\n before they are encoded (RFC 2045, 6.8)
  for (const char c : to_utf8_lossy(any_bytes)) {
    if (c == '\n' && !lines.ends_with('\r')) lines += '\r';
    lines += c;
  }
  std::string result = "Content-Type: ";
  result.append(type).append("; charset=utf-8\nContent-Transfer-Encoding: base64\n\n");
  const std::string encoded = base64_encode(lines);
  for (std::size_t i = 0; i < encoded.size(); i += kMostInBase64Line)
    result.append(encoded, i, kMostInBase64Line).append("\n");
  return result;
}

}  // namespace

std::string message_text(const Message& message) {
  const std::string domain = message.domain.empty() ? "localhost" : plain(message.domain);
  std::string result;
  const auto add = [&](std::string_view name, std::string_view value) {
    result.append(name).append(": ").append(value).append("\n");
  };
  const auto column = [](std::string_view name) { return name.size() + 2; };
  add("From", from_text(message.from, column("From")));
  add("To", plain(message.to));
  add("Subject", header_text(message.subject, column("Subject")));
  add("Date", date_text(message.date, message.zone));
  add("Message-ID", "<" + plain(message.id) + "@" + domain + ">");
  add("MIME-Version", "1.0");
  add("Auto-Submitted", "auto-generated");  // RFC 3834: no answer by a program
  add("Precedence", "bulk");
  add("List-Id", "<scriptorium." + domain + ">");
  if (!message.unsubscribe.empty()) {
    std::string address = plain(message.unsubscribe);
    for (std::size_t i = 0; (i = address.find('%', i)) != std::string::npos; i += 3)
      address.replace(i, 1, "%25");
    add("List-Unsubscribe", "<mailto:" + address + ">");
  }
  if (!message.language.empty()) add("Content-Language", plain(message.language));
  // "=_" is in no line of base64.
  const std::string boundary = "=_" + sha256_hex(message.id).substr(0, 32);
  add("Content-Type", "multipart/alternative;\n boundary=\"" + boundary + "\"");
  for (const auto& [type, text] :
       {std::pair("text/plain", &message.text), std::pair("text/html", &message.html)})
    result.append("\n--").append(boundary).append("\n").append(part(type, *text));
  return result.append("\n--").append(boundary).append("--\n");
}

bool is_address(std::string_view text) { return mail_address(text) == text; }

}  // namespace scriptorium::mail

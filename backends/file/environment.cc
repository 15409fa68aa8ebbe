#include "backends/file/environment.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium::file {
namespace {

void append_escaped(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    switch (c) {
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\0': out += "\\0"; break;
      default: out += c;
    }
  }
}

bool is_shell_name(std::string_view name) {
  return !name.empty() && !is_digit(name[0]) &&
         std::ranges::all_of(name, [](char c) { return is_alphanumeric(c) || c == '_'; });
}

// bash refuses to assign to these; the line would only make a person doubt the whole file.
bool is_readonly_in_bash(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames{"BASHOPTS", "BASH_VERSINFO", "EUID",
                                                   "PPID",     "SHELLOPTS",     "UID"};
  return std::ranges::find(kNames, name) != kNames.end();
}

void append_quoted(std::string& out, std::string_view value) {
  out += '\'';
  for (const char c : value) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  out += '\'';
}

std::string render_lines(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 64);
  while (!bytes.empty()) {
    append_escaped(out, take_until(bytes, '\0'));
    out += '\n';
  }
  return out;
}

std::string render_shell(std::string_view bytes) {
  std::string out = "# Environment of a batch job; bash reads it back with:  . ./FILE\n";
  out.reserve(bytes.size() + bytes.size() / 2 + 128);
  while (!bytes.empty()) {
    const std::string_view entry = take_until(bytes, '\0');
    // An '=' in front belongs to the name.
    const std::size_t equals = entry.find('=', 1);
    const std::string_view name = entry.substr(0, equals);
    if (equals != std::string_view::npos && is_shell_name(name) && !is_readonly_in_bash(name)) {
      out.append("export ").append(name) += '=';
      append_quoted(out, entry.substr(equals + 1));
    } else {
      // Exported functions ("BASH_FUNC_x%%") and names that no shell can set: only to be read,
      // escaped like kLines so that nothing of it leaves the comment.
      out += "#env ";
      append_escaped(out, entry);
    }
    out += '\n';
  }
  return out;
}

// Undoes append_escaped() up to the end of the line, which it takes off the text.
std::optional<std::string> take_escaped_line(std::string_view& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      text.remove_prefix(i + 1);
      return out;
    }
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    switch (text[i]) {
      case '\\': out += '\\'; break;
      case 'n': out += '\n'; break;
      case '0': out += '\0'; break;
      default: return std::nullopt;
    }
  }
  return std::nullopt;  // no end of line
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// `export NAME='value'` and the end of its line; a quote in the value is `'\''`.
std::optional<std::string> take_export(std::string_view& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  std::string out(text.substr(0, equals + 1));
  text.remove_prefix(equals + 1);
  if (!take_prefix(text, "'")) return std::nullopt;
  while (true) {
    const std::size_t quote = text.find('\'');
    if (quote == std::string_view::npos) return std::nullopt;
    out += text.substr(0, quote);
    text.remove_prefix(quote);
    if (take_prefix(text, "'\\''")) {
      out += '\'';
    } else if (take_prefix(text, "'\n")) {
      return out;
    } else {
      return std::nullopt;
    }
  }
}

std::optional<std::string> parse_shell(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::optional<std::string> entry;
    if (take_prefix(text, "export ")) {
      entry = take_export(text);
    } else if (take_prefix(text, "#env ")) {
      entry = take_escaped_line(text);
    }
    if (!entry) return std::nullopt;
    (out += *entry) += '\0';
  }
  return out;
}

}  // namespace

std::optional<std::string> parse_environment(std::string_view text, EnvironmentFormat format,
                                             EnvironmentStyle style) {
  if (style == EnvironmentStyle::kNul) return std::string(text);
  if (style == EnvironmentStyle::kLines) {
    if (format != EnvironmentFormat::kNulEnded) {
      auto whole = take_escaped_line(text);
      return text.empty() ? whole : std::nullopt;
    }
    std::string out;
    while (!text.empty()) {
      auto line = take_escaped_line(text);
      if (!line) return std::nullopt;
      (out += *line) += '\0';
    }
    return out;
  }
  const std::size_t head = text.find('\n');
  if (!text.starts_with('#') || head == std::string_view::npos) return std::nullopt;
  text.remove_prefix(head + 1);
  if (format == EnvironmentFormat::kNulEnded) return parse_shell(text);
  if (!take_prefix(text, "#base64 ") || !text.ends_with('\n')) return std::nullopt;
  return base64_decode(text.substr(0, text.size() - 1));
}

std::string render_environment(std::string_view bytes, EnvironmentFormat format,
                               EnvironmentStyle style) {
  if (style == EnvironmentStyle::kNul) return std::string(bytes);
  if (format == EnvironmentFormat::kNulEnded)
    return style == EnvironmentStyle::kLines ? render_lines(bytes) : render_shell(bytes);
  std::string out;
  if (style == EnvironmentStyle::kLines) {
    append_escaped(out, bytes);
    return out += '\n';
  }
  return "# Environment of a batch job that could not be parsed; its bytes in base64:\n#base64 " +
         base64_encode(bytes) + '\n';
}

}  // namespace scriptorium::file

#include "core/api/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium {
namespace {

constexpr std::size_t kGivenLimit = 80;  // bytes of a value in a message
constexpr std::string_view kHexDigits = "0123456789ABCDEF";

bool is_bare_key(std::string_view key) noexcept {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return is_alphanumeric(c) || c == '_' || c == '-';
  });
}

std::string key_text(std::string_view key) {
  const std::string_view beginning = key.substr(0, kGivenLimit);
  return (is_bare_key(key) ? std::string(beginning) : options_detail::quote(beginning)) +
         (key.size() > kGivenLimit ? "..." : "");
}

std::string full_key(const Table& table, std::string_view key) {
  return options_detail::join_key(table.path, key);
}

constexpr std::array<std::string_view, 5> kSecretWords = {"password", "passwd", "secret", "token",
                                                          "api_key"};

// Keys under which somebody may have typed a password into the configuration by mistake. A key that
// ends in "_file" only names a path.
bool names_secret(std::string_view key) {
  const std::string lower = to_lower(key);
  if (lower.ends_with("_file")) return false;
  return std::any_of(kSecretWords.begin(), kSecretWords.end(),
                     [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

// Cuts at a character boundary.
void cut(std::string& text, std::size_t limit) {
  if (text.size() <= limit) return;
  std::size_t end = limit > 3 ? limit - 3 : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  text += "...";
}

// Stops soon after kGivenLimit bytes, for a value of any size.
void append_text(const Value& value, std::string& out) {
  if (out.size() > kGivenLimit) return;
  if (const auto* s = std::get_if<std::string>(&value.data)) {
    out += options_detail::quote(std::string_view(*s).substr(0, 2 * kGivenLimit));
  } else if (const auto* i = std::get_if<std::int64_t>(&value.data)) {
    out += std::to_string(*i);
  } else if (const auto* d = std::get_if<double>(&value.data)) {
    out += options_detail::default_text(*d);
  } else if (const auto* b = std::get_if<bool>(&value.data)) {
    out += *b ? "true" : "false";
  } else if (const auto* list = std::get_if<std::vector<Value>>(&value.data)) {
    out += '[';
    for (std::size_t n = 0; n < list->size() && out.size() <= kGivenLimit; ++n) {
      if (n > 0) out += ", ";
      append_text((*list)[n], out);
    }
    out += ']';
  } else if (const auto* table = std::get_if<Table>(&value.data)) {
    if (table->entries.empty()) {
      out += "{}";
      return;
    }
    out += "{ ";
    for (std::size_t n = 0; n < table->entries.size() && out.size() <= kGivenLimit; ++n) {
      const TableEntry& entry = table->entries[n];
      if (n > 0) out += ", ";
      out += key_text(entry.key) + " = ";
      if (names_secret(entry.key)) {
        out += Secret::text();
      } else {
        append_text(entry.value, out);
      }
    }
    out += " }";
  }
}

std::string given_text(std::string_view key, const Value& value, bool secret) {
  return secret || names_secret(key) ? Secret::text() : value.text();
}

Problem about(const Table& table, const OptionInfo& info, const Value& value, std::string problem) {
  return {.position = value.position,
          .key = full_key(table, info.name),
          .problem = std::move(problem),
          .given = given_text(info.name, value, info.secret)};
}

// "integer, 1 .. 64"; for a choice only its words.
std::string allowed_text(const OptionInfo& info) {
  if (info.allowed.empty() || info.type.empty() || info.type.front() == '"')
    return info.allowed.empty() ? info.type : info.allowed;
  return info.type + ", " + info.allowed;
}

// ---- numbers with a unit

struct UnitWord {
  std::string_view word;
  long double factor;
};
constexpr UnitWord kDurations[] = {{"ms", 1},         {"s", 1000},      {"m", 60'000},
                                   {"min", 60'000},   {"h", 3'600'000}, {"d", 86'400'000},
                                   {"w", 604'800'000}};
// A unit without "i" and "B" is a power of 1024, as in systemd, Slurm and Docker.
constexpr UnitWord kSizes[] = {{"B", 1},          {"K", 1024},          {"M", 1048576},
                               {"G", 1073741824}, {"T", 1099511627776}, {"KiB", 1024},
                               {"MiB", 1048576},  {"GiB", 1073741824},  {"TiB", 1099511627776},
                               {"kB", 1e3L},      {"KB", 1e3L},         {"MB", 1e6L},
                               {"GB", 1e9L},      {"TB", 1e12L}};

// The unit that a key's name states.
struct KeyUnit {
  std::string_view suffix;
  std::string_view plural;
  std::span<const UnitWord> words;
  long double factor;
};
constexpr KeyUnit kKeyUnits[] = {{"_ms", "milliseconds", kDurations, 1},
                                 {"_seconds", "seconds", kDurations, 1000},
                                 {"_hours", "hours", kDurations, 3'600'000},
                                 {"_days", "days", kDurations, 86'400'000},
                                 {"_bytes", "bytes", kSizes, 1}};

const KeyUnit* unit_of_key(std::string_view key) {
  const auto found = std::find_if(std::begin(kKeyUnits), std::end(kKeyUnits),
                                  [&](const KeyUnit& u) { return key.ends_with(u.suffix); });
  return found == std::end(kKeyUnits) ? nullptr : found;
}
const char* examples_of(const KeyUnit& unit) {
  return unit.suffix == "_bytes"
             ? "a size such as \"512KiB\", \"64MiB\" or \"1GiB\""
             : "a duration such as \"500ms\", \"90s\", \"5m\", \"2h\" or \"1h30m\"";
}

// "1h30m", "1.5GiB", "64 MiB": numbers, each with its unit, converted to the smallest unit of
// `words`.
std::optional<long double> parse_amounts(std::string_view text, std::span<const UnitWord> words) {
  long double sum = 0;
  std::size_t at = 0;
  const auto skip_blanks = [&] {
    while (at < text.size() && text[at] == ' ') ++at;
  };
  skip_blanks();
  if (at == text.size()) return std::nullopt;
  while (at < text.size()) {
    long double number = 0;
    long double scale = 1;
    std::size_t digits = 0;
    bool fraction = false;
    for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !fraction && digits > 0));
         ++at) {
      if (text[at] == '.') {
        fraction = true;
        continue;
      }
      if (++digits > 15) return std::nullopt;
      number = number * 10 + static_cast<long double>(text[at] - '0');
      if (fraction) scale *= 10;
    }
    if (digits == 0 || text[at - 1] == '.') return std::nullopt;
    skip_blanks();
    const std::size_t begin = at;
    while (at < text.size() && !is_digit(text[at]) && text[at] != ' ') ++at;
    const std::string_view word = text.substr(begin, at - begin);
    const auto unit =
        std::find_if(words.begin(), words.end(), [&](const UnitWord& u) { return u.word == word; });
    if (unit == words.end()) return std::nullopt;
    sum += number * unit->factor / scale;
    skip_blanks();
  }
  return sum;
}

// Reads a number written as a string with a unit, for a key that has one. Returns nothing and
// reports a problem for any other string.
std::optional<std::int64_t> read_amount(const Value& value, std::string_view text,
                                        const KeyUnit& unit, const Table& table,
                                        const OptionInfo& info, Problems& problems) {
  const auto amount = parse_amounts(text, unit.words);
  if (!amount) {
    options_detail::not_allowed(value, table, info, std::string("not ") + examples_of(unit),
                                problems);
    return std::nullopt;
  }
  const long double counted = *amount / unit.factor;
  if (counted != std::floor(counted) || counted > 9e18L) {
    options_detail::not_allowed(value, table, info,
                                "not a whole number of " + std::string(unit.plural), problems);
    return std::nullopt;
  }
  return static_cast<std::int64_t>(counted);
}

}  // namespace

const Value* Table::find(std::string_view key) const noexcept {
  for (const TableEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

std::string Value::text() const {
  std::string result;
  append_text(*this, result);
  cut(result, kGivenLimit);
  return result;
}

std::string Problem::text() const {
  std::string result;
  if (!position.file.empty()) {
    result += position.file;
    if (position.line > 0) result += ":" + std::to_string(position.line);
    result += ": ";
  }
  if (!key.empty()) result += key + ": ";
  result += problem;
  if (!did_you_mean.empty()) result += "; did you mean \"" + did_you_mean + "\"?";
  if (!allowed.empty()) result += "; allowed: " + allowed;
  if (!given.empty()) result += "; given: " + given;
  return result;
}

void Problems::add(const Table& table, std::string_view key, std::string problem,
                   std::string allowed) {
  Problem made{.position = table.position,
               .key = full_key(table, key),
               .problem = std::move(problem),
               .allowed = std::move(allowed)};
  if (const Value* value = table.find(key)) {
    made.position = value->position;
    made.given = given_text(key, *value, false);
  }
  add(std::move(made));
}

void Problems::sort() {
  std::map<std::string, std::size_t> ranks;
  for (const Problem& problem : list_) ranks.emplace(problem.position.file, ranks.size());
  const auto place = [&](const Position& position) {
    return std::pair(ranks.at(position.file), position.line == 0
                                                  ? std::numeric_limits<std::uint32_t>::max()
                                                  : position.line);
  };
  std::stable_sort(list_.begin(), list_.end(), [&](const Problem& a, const Problem& b) {
    return place(a.position) < place(b.position);
  });
}

namespace options_detail {

std::string quote(std::string_view text) {
  const std::string lossy = is_utf8(text) ? std::string{} : to_utf8_lossy(text);  // TOML is UTF-8
  if (!lossy.empty()) text = lossy;
  std::string result = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    unsigned control = 0;
    bool escape = byte < 0x20 || byte == 0x7F;
    if (escape) control = byte;
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      // U+0080 .. U+009F: terminals interpret some of them.
      escape = true;
      control = static_cast<unsigned char>(text[++i]);
    }
    if (escape) {
      if (control == '\n') {
        result += "\\n";
      } else if (control == '\t') {
        result += "\\t";
      } else {
        result += "\\u00";
        result += kHexDigits[control >> 4];
        result += kHexDigits[control & 15U];
      }
      continue;
    }
    if (byte == '"' || byte == '\\') result += '\\';
    result += text[i];
  }
  result += '"';
  return result;
}

std::string join_key(const std::string& path, std::string_view key) {
  return path.empty() ? key_text(key) : path + "." + key_text(key);
}

void wrong_type(const Value& value, const Table& table, const OptionInfo& info,
                Problems& problems) {
  Problem made = about(table, info, value, "wrong type");
  made.allowed = allowed_text(info);
  problems.add(std::move(made));
}

void not_allowed(const Value& value, const Table& table, const OptionInfo& info,
                 std::string problem, Problems& problems, const std::vector<std::string>& words) {
  Problem made = about(table, info, value, std::move(problem));
  made.allowed = info.allowed;
  if (const auto* word = std::get_if<std::string>(&value.data);
      word != nullptr && word->size() <= kGivenLimit && !info.secret) {
    made.did_you_mean = did_you_mean(*word, words).value_or("");
  }
  problems.add(std::move(made));
}

void missing(const Table& table, const OptionInfo& info, Problems& problems) {
  if (table.damaged) return;
  problems.add(
      {.position = table.position,
       .key = full_key(table, info.name),
       .problem = "required key is missing" + (info.help.empty() ? "" : " (" + info.help + ")"),
       .allowed = allowed_text(info)});
}

bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p, bool& out) {
  const auto* value = std::get_if<bool>(&v.data);
  if (value == nullptr) return wrong_type(v, t, i, p), false;
  out = *value;
  return true;
}

bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p, std::int64_t& out) {
  if (const auto* text = std::get_if<std::string>(&v.data)) {
    if (const KeyUnit* unit = unit_of_key(i.name)) {
      const auto amount = read_amount(v, *text, *unit, t, i, p);
      if (amount) out = *amount;
      return amount.has_value();
    }
  }
  const auto* value = std::get_if<std::int64_t>(&v.data);
  if (value == nullptr) return wrong_type(v, t, i, p), false;
  out = *value;
  return true;
}

bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p, double& out) {
  if (const auto* integer = std::get_if<std::int64_t>(&v.data)) {
    out = static_cast<double>(*integer);
    return true;
  }
  const auto* value = std::get_if<double>(&v.data);
  if (value == nullptr) return wrong_type(v, t, i, p), false;
  out = *value;
  return true;
}

bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p, std::string& out) {
  const auto* value = std::get_if<std::string>(&v.data);
  if (value == nullptr) return wrong_type(v, t, i, p), false;
  out = *value;
  return true;
}

bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p,
         std::vector<std::string>& out) {
  const auto* list = std::get_if<std::vector<Value>>(&v.data);
  if (list == nullptr) return wrong_type(v, t, i, p), false;
  std::vector<std::string> result;
  bool good = true;
  for (std::size_t n = 0; n < list->size(); ++n) {
    const Value& item = (*list)[n];
    if (const auto* text = std::get_if<std::string>(&item.data)) {
      result.push_back(*text);
      continue;
    }
    Problem made =
        about(t, i, item, "item " + std::to_string(n + 1) + " of the list is of the wrong type");
    made.allowed = "string";
    p.add(std::move(made));
    good = false;
  }
  if (good) out = std::move(result);
  return good;
}

std::string default_text(bool value) { return value ? "true" : "false"; }

std::string default_text(std::int64_t value) { return std::to_string(value); }

std::string default_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::string result(text.data(), end);
  if (result.find_first_of(".e") == std::string::npos)
    result += ".0";  // without it TOML reads an integer
  return result;
}

std::string default_text(const std::string& value) { return quote(value); }

std::string default_text(const std::vector<std::string>& value) {
  std::string result = "[";
  for (std::size_t n = 0; n < value.size(); ++n) result += (n > 0 ? ", " : "") + quote(value[n]);
  return result + "]";
}

std::string integer_type(std::string_view name) {
  const KeyUnit* unit = unit_of_key(name);
  if (unit == nullptr) return "integer";
  return unit->suffix == "_bytes" ? "integer or a size such as \"64MiB\""
                                  : "integer or a duration such as \"5m\"";
}

const char* type_name(const bool*) { return "true or false"; }
const char* type_name(const std::int64_t*) { return "integer"; }
const char* type_name(const double*) { return "number"; }
const char* type_name(const std::string*) { return "string"; }
const char* type_name(const std::vector<std::string>*) { return "list of strings"; }

}  // namespace options_detail
}  // namespace scriptorium

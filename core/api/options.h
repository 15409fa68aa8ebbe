#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/result.h"

// Options of a plugin, and of core itself: a struct that holds the defaults, and a Schema for it.
// Core converts TOML to a Table once; no other code sees TOML.
namespace scriptorium {

struct Position {
  std::string file;        // as opened
  std::uint32_t line = 0;  // starts at 1; 0 = not from a file
};

struct Value;
struct TableEntry;

// A TOML table with the position of each key. Keys are unique, in file order.
struct Table {
  std::vector<TableEntry> entries;
  Position position;
  std::string path;  // "sink.archive": precedes every key in messages
  // A line of the table could not be read. That is reported already; a key that seems to be missing
  // may be in that line, so no key is reported as missing.
  bool damaged = false;

  const Value* find(std::string_view key) const noexcept;  // null if the key is missing
};

struct Value {
  std::variant<bool, std::int64_t, double, std::string, std::vector<Value>, Table> data;
  Position position;

  // The value in TOML syntax on one line, for "given:". Long values are cut with "..."; the value
  // of a key that names a secret ("password") is shown as "***".
  std::string text() const;
};

struct TableEntry {
  std::string key;
  Value value;
};

// One error in the configuration.
struct Problem {
  Position position;
  std::string key;      // "sink.kafka.compression"
  std::string problem;  // "unknown value"
  std::string allowed;  // "\"none\", \"zstd\""; "" = nothing to say
  std::string given;    // "\"lzma\""
  std::string did_you_mean;

  // file:line: key: problem; did you mean "x"?; allowed: a; given: b
  std::string text() const;
};

// Collects every problem of every file, so that one run reports them all.
class Problems {
 public:
  void add(Problem problem) { list_.push_back(std::move(problem)); }
  // Reports a key of a table with its line and value, or the table's line if the key is missing.
  void add(const Table& table, std::string_view key, std::string problem, std::string allowed = {});
  // Sorts by file (in order of first mention) and line; problems of a file as a whole come last.
  void sort();
  bool empty() const noexcept { return list_.empty(); }
  const std::vector<Problem>& list() const noexcept { return list_; }

 private:
  std::vector<Problem> list_;
};

// A password or token. It is never printed: text() is "***". It is read from a file
// (`password_file`), never from the configuration.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string value) : value_(std::move(value)) {}
  const std::string& reveal() const noexcept { return value_; }
  bool empty() const noexcept { return value_.empty(); }
  static const char* text() noexcept { return "***"; }

 private:
  std::string value_;
};

// What `scriptorium plugins NAME` and the reference page show about an option.
struct OptionInfo {
  std::string name;
  std::string type;  // "string", "integer", "integer or a duration such as \"5m\"", "true or
                     // false", "list of strings", "\"a\" |
                     // \"b\"", "table"
  std::string default_value;  // as TOML; "" = none
  std::string allowed;        // "1 .. 100000"; "" = any
  std::string help;           // one sentence
  bool required = false;
  bool secret = false;
};

template <typename T>
struct Option {
  OptionInfo info;
  // Stores the value in the struct, or reports a problem.
  std::function<void(const Value& value, const Table& table, T& into, Problems& problems)> apply;
  std::function<std::string(const T& defaults)> default_text;
};

namespace options_detail {
std::string quote(
    std::string_view text);  // as a TOML string on one line; control characters escaped
// "sink.archive" and "root" -> "sink.archive.root"; a key that TOML would quote is quoted, and a
// very long key is cut.
std::string join_key(const std::string& path, std::string_view key);
void wrong_type(const Value& value, const Table& table, const OptionInfo& info, Problems& problems);
// `words`: the allowed values, if they can be listed; the nearest one becomes the "did you mean".
void not_allowed(const Value& value, const Table& table, const OptionInfo& info,
                 std::string problem, Problems& problems,
                 const std::vector<std::string>& words = {});
void missing(const Table& table, const OptionInfo& info, Problems& problems);
// Read a value of one type; false, with a problem reported, if it has another type.
bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p, bool& out);
bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p, std::int64_t& out);
bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p,
         double& out);  // accepts integers too
bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p, std::string& out);
bool get(const Value& v, const Table& t, const OptionInfo& i, Problems& p,
         std::vector<std::string>& out);
std::string default_text(bool value);
std::string default_text(std::int64_t value);
std::string default_text(double value);
std::string default_text(const std::string& value);
std::string default_text(const std::vector<std::string>& value);
template <typename V>
std::string default_text(const std::optional<V>& value) {
  return value ? default_text(*value) : std::string{};
}
// "integer", and for a key that ends in a unit also a duration ("5m") or a size ("1GiB").
std::string integer_type(std::string_view name);
const char* type_name(const bool*);
const char* type_name(const std::int64_t*);
const char* type_name(const double*);
const char* type_name(const std::string*);
const char* type_name(const std::vector<std::string>*);
template <typename V>
const char* type_name(const std::optional<V>*) {
  return type_name(static_cast<const V*>(nullptr));
}
template <typename V>
struct Plain {
  using type = V;
};
template <typename V>
struct Plain<std::optional<V>> {
  using type = V;
};
}  // namespace options_detail

// Members may be bool, std::int64_t, double, std::string, std::vector<std::string>, or
// std::optional of one.
template <typename T, typename M>
Option<T> option(std::string name, M T::* member, std::string help) {
  using V = typename options_detail::Plain<M>::type;
  OptionInfo info{.name = std::move(name), .help = std::move(help)};
  info.type = options_detail::type_name(static_cast<const V*>(nullptr));
  if constexpr (std::is_same_v<V, std::int64_t>)
    info.type = options_detail::integer_type(info.name);
  return {info,
          [member, info](const Value& value, const Table& table, T& into, Problems& problems) {
            V got{};
            if (options_detail::get(value, table, info, problems, got))
              into.*member = std::move(got);
          },
          [member](const T& defaults) { return options_detail::default_text(defaults.*member); }};
}

// Like option(), but the key is required.
template <typename T, typename M>
Option<T> required(const std::string& name, M T::* member, const std::string& help) {
  Option<T> made = option<T, M>(name, member, help);
  made.info.required = true;
  return made;
}

// An integer within [least, most]. Where the name ends in its unit (_ms, _seconds, _hours, _days,
// _bytes), a string such as "5m" or "1GiB" is accepted as well.
template <typename T, typename M>
Option<T> integer(std::string name, M T::* member, std::int64_t least, std::int64_t most,
                  std::string help) {
  OptionInfo info{.name = std::move(name), .type = {}, .help = std::move(help)};
  info.type = options_detail::integer_type(info.name);
  info.allowed = std::to_string(least) + " .. " +
                 (most == std::numeric_limits<std::int64_t>::max() ? "any" : std::to_string(most));
  return {info,
          [member, info, least, most](const Value& value, const Table& table, T& into,
                                      Problems& problems) {
            std::int64_t got = 0;
            if (!options_detail::get(value, table, info, problems, got)) return;
            if (got < least || got > most)
              return options_detail::not_allowed(value, table, info, "out of range", problems);
            into.*member = got;
          },
          [member](const T& defaults) { return options_detail::default_text(defaults.*member); }};
}

// One of several words, each with its value.
template <typename T, typename E>
Option<T> choice(std::string name, E T::* member,
                 const std::vector<std::pair<std::string, E>>& words, std::string help) {
  OptionInfo info{.name = std::move(name), .help = std::move(help)};
  for (const auto& [word, value] : words) {
    info.type += (info.type.empty() ? "" : " | ") + options_detail::quote(word);
    info.allowed += (info.allowed.empty() ? "" : ", ") + options_detail::quote(word);
  }
  return {
      info,
      [member, info, words](const Value& value, const Table& table, T& into, Problems& problems) {
        std::string got;
        if (!options_detail::get(value, table, info, problems, got)) return;
        std::vector<std::string> spelled;
        for (const auto& [word, meant] : words) {
          if (word == got) {
            into.*member = meant;
            return;
          }
          spelled.push_back(word);
        }
        options_detail::not_allowed(value, table, info, "unknown value", problems, spelled);
      },
      [member, words](const T& defaults) {
        for (const auto& [word, meant] : words) {
          if (meant == defaults.*member) return options_detail::quote(word);
        }
        return std::string{};
      }};
}

// Any other type of value: `apply` reads it and reports problems.
template <typename T>
Option<T> custom(OptionInfo info,
                 std::function<void(const Value&, const Table&, T&, Problems&)> apply) {
  std::string text = info.default_value;
  return {std::move(info), std::move(apply), [text = std::move(text)](const T&) { return text; }};
}

// The options of one struct. Core reports unknown keys, because it knows the options that every
// source or sink takes; the plugin checks nested tables.
template <typename T>
class Schema {
 public:
  Schema(std::initializer_list<Option<T>> options) : options_(options) {}

  // Fills a struct from its defaults and the table, and reports every problem.
  T parse(const Table& table, Problems& problems) const {
    T result{};
    for (const Option<T>& o : options_) {
      if (const Value* value = table.find(o.info.name)) {
        o.apply(*value, table, result, problems);
      } else if (o.info.required) {
        options_detail::missing(table, o.info, problems);
      }
    }
    return result;
  }

  std::vector<OptionInfo> options() const {
    const T defaults{};
    std::vector<OptionInfo> result;
    for (const Option<T>& o : options_) {
      result.push_back(o.info);
      if (!o.info.required && o.default_text)
        result.back().default_value = o.default_text(defaults);
    }
    return result;
  }

 private:
  std::vector<Option<T>> options_;
};

}  // namespace scriptorium

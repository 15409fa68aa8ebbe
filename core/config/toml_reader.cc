#include "core/config/toml_reader.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium {
namespace {

constexpr std::size_t kMaxDottedParts = 16;  // a.b.c has 3
constexpr std::size_t kMaxNesting = 32;      // nesting of tables and lists
constexpr int kMaxMistakes = 64;             // syntax errors per file
// Prefix of the name of a table that replaces an invalid header, so that the keys below it are not
// assigned to the table above: as written in TOML, and as parsed.
constexpr std::string_view kSkippedHeader = "[\"\\u0001";
constexpr char kSkippedTable = '\x01';

std::string_view trim_line(std::string_view text) { return trim(text, " \t\r"); }

// The text as lines that can be changed individually; numbers start at 1.
class Lines {
 public:
  explicit Lines(std::string_view text) {
    if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      lines_.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
  }

  std::uint32_t count() const { return static_cast<std::uint32_t>(lines_.size()); }
  std::string_view line(std::uint32_t number) const { return lines_.at(number - 1); }
  void replace(std::uint32_t number, std::string text) { lines_.at(number - 1) = std::move(text); }
  std::string text() const {
    std::string result;
    for (const std::string& line : lines_) result.append(line).push_back('\n');
    return result;
  }

 private:
  std::vector<std::string> lines_;
};

bool is_key_character(char c) {
  return is_alphanumeric(c) || std::string_view("_-.\"' \t").find(c) != std::string_view::npos;
}

// "[sink.archive]", closed or not; not "[1, 2]," in a list.
bool is_header(std::string_view line) {
  line = trim_line(line);
  if (line.substr(0, 1) != "[") return false;
  line.remove_prefix(line.find_first_not_of('[') == std::string_view::npos
                         ? line.size()
                         : line.find_first_not_of('['));
  const std::string_view name = line.substr(0, line.find_first_of("]#"));
  const std::string_view rest =
      trim_line(line.substr(std::min(line.find_first_not_of(']', name.size()), line.size())));
  return (std::all_of(name.begin(), name.end(), is_key_character) ||
          line.starts_with(kSkippedHeader.substr(1))) &&
         !rest.starts_with(',');
}

std::size_t indentation(std::string_view line) {
  return std::min(line.find_first_not_of(" \t"), line.size());
}

// "[ sink.archive ]" -> "sink.archive"; "" if the line is not a header.
std::string_view header_name(std::string_view line) {
  line = trim_line(line);
  while (line.substr(0, 1) == "[") line.remove_prefix(1);
  return trim_line(line.substr(0, line.find_first_of("]#")));
}

// "root = ..." -> "root"; "" if the line does not begin with a key and '='.
std::string_view key_of(std::string_view line) {
  line = trim_line(line);
  const auto equals = line.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view key = trim_line(line.substr(0, equals));
  return std::all_of(key.begin(), key.end(), is_key_character) ? key : std::string_view{};
}

// The nearest header line above; 0 if there is none.
std::uint32_t section_line(const Lines& lines, std::uint32_t number) {
  for (std::uint32_t i = number - 1; i > 0; --i) {
    if (is_header(lines.line(i)) && trim_line(lines.line(i)).find(']') != std::string_view::npos &&
        key_of(lines.line(i)).empty())
      return i;
  }
  return 0;
}

std::string full_key(const Lines& lines, std::uint32_t number) {
  const std::string_view line = lines.line(number);
  if (is_header(line)) return printable(header_name(line), 100);
  const std::string_view key = key_of(line);
  if (key.empty()) return {};
  const std::uint32_t section = section_line(lines, number);
  if (section == 0) return printable(key, 100);
  if (lines.line(section).starts_with(kSkippedHeader)) return printable(key, 100);
  const std::string_view name = header_name(lines.line(section));
  return printable(std::string(name) + "." + std::string(key), 100);
}

// The line where the same key of the same table, or the same header, occurs first; 0 if not found.
std::uint32_t first_line(const Lines& lines, std::uint32_t number) {
  const bool header = is_header(lines.line(number));
  const std::uint32_t from = header ? 1 : section_line(lines, number) + 1;
  for (std::uint32_t i = from; i < number; ++i) {
    if (header ? is_header(lines.line(i)) &&
                     header_name(lines.line(i)) == header_name(lines.line(number))
               : !is_header(lines.line(i)) && !key_of(lines.line(i)).empty() &&
                     key_of(lines.line(i)) == key_of(lines.line(number))) {
      return i;
    }
  }
  return 0;
}

// The number of '[' open at the end of a line's value, ignoring quotes and comments.
int open_lists(std::string_view value) {
  int open = 0;
  char quote = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      break;
    } else {
      open += c == '[' ? 1 : (c == ']' ? -1 : 0);
    }
  }
  return open;
}

// The line of the key whose list is still open before line `number`; 0 if there is none.
std::uint32_t open_list_line(const Lines& lines, std::uint32_t number) {
  int open = 0;
  for (std::uint32_t i = number - 1; i > 0; --i) {
    const std::string_view line = lines.line(i);
    const bool begins = !key_of(line).empty();
    open += open_lists(begins ? line.substr(line.find('=')) : line);
    if (begins) return open > 0 ? i : 0;
  }
  return 0;
}

// Input that toml++ cannot handle. It creates a table for each part of a dotted key and destroys
// them recursively, so a key of a hundred thousand parts overflows the stack (3.3 has no limit). It
// reports an unclosed string only at the end of the file.
struct Scan {
  std::uint32_t too_many_parts = 0;  // a line
  std::uint32_t unclosed = 0;        // the line on which an unclosed multi-line string begins
};

Scan scan(std::string_view text) {
  Scan found;
  std::uint32_t line = 1;
  std::size_t dots = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string_view three = c == '"' ? "\"\"\"" : "'''";
      const bool multi = text.substr(i, 3) == three;
      const std::uint32_t begin = line;
      std::size_t at = i + (multi ? 3 : 1);
      bool closed = false;
      for (; at < text.size(); ++at) {
        if (c == '"' && text[at] == '\\') {
          ++at;
          if (at < text.size() && text[at] == '\n') ++line;
        } else if (multi ? text.substr(at, 3) == three : text[at] == c) {
          closed = true;
          break;
        } else if (text[at] == '\n') {
          if (!multi) break;  // toml++ reports it on the correct line
          ++line;
        }
      }
      if (multi && !closed) {
        found.unclosed = begin;
        return found;
      }
      if (!closed) {
        i = at - 1;  // the newline is still to be counted
        continue;
      }
      i = at + (multi ? 2 : 0);
      // Up to two more quotes may belong to the string's end.
      while (multi && i + 1 < text.size() && text[i + 1] == c) ++i;
    } else if (c == '.') {
      if (++dots >= kMaxDottedParts && found.too_many_parts == 0) found.too_many_parts = line;
    } else if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) {
      dots = 0;
    }
  }
  return found;
}

struct SyntaxError {
  std::uint32_t line = 0;
  std::string description;
};

std::variant<toml::table, SyntaxError> parse(const std::string& text) {
  try {
    return toml::parse(std::string_view(text));
  } catch (const toml::parse_error& e) {
    return SyntaxError{e.source().begin.line, std::string(e.description())};
  } catch (const std::exception& e) {
    return SyntaxError{0, e.what()};
  }
}

// Translates toml++'s error into terms of someone who edits a configuration.
Problem describe(const Lines& lines, std::uint32_t number, const SyntaxError& error,
                 const std::string& name) {
  Problem problem{.position = {name, number}, .key = full_key(lines, number)};
  const std::string_view line = lines.line(number);
  const auto says = [&](std::string_view part) {
    return error.description.find(part) != std::string::npos;
  };
  if (says("cannot redefine")) {
    const std::uint32_t first = first_line(lines, number);
    const std::string_view word = is_header(line) ? "table" : "key";
    problem.problem = "duplicate " + std::string(word);
    if (first > 0) {
      problem.problem += "; it is already in line " + std::to_string(first);
    } else if (const auto quote = error.description.find('\''); quote != std::string::npos) {
      problem.problem +=
          ": " + printable(error.description.substr(quote), 100) + " is already defined";
    }
  } else if (says("could not determine value type") || says("parsing boolean") ||
             says("expected 'nan'") || says("expected 'inf'")) {
    problem.problem = "syntax error: not a value; a text needs quotes";
    problem.allowed = "\"text\", a number, true, false, [a list], { a table }";
  } else if (says("expected a comment or whitespace")) {
    problem.problem = "syntax error: the value is followed by something else";
    problem.allowed = "a # comment";
  } else if (says("unescaped control characters") ||
             (says("parsing string") && says("end-of-file"))) {
    problem.problem =
        "syntax error: the text's closing quote is missing, or it holds a control character";
  } else if (says("utf-8")) {
    problem.problem = "syntax error: the file is not UTF-8 here";
  } else {
    std::string words = error.description;
    for (const std::string_view prefix : {"Error while parsing ", "Error while "}) {
      if (words.substr(0, prefix.size()) == prefix) {
        words.erase(0, prefix.size());
        break;
      }
    }
    problem.problem = "syntax error in " + printable(words, 200);
  }
  return problem;
}

// Converts toml++'s tree to ours.
class Converter {
 public:
  Converter(std::string name, Problems& problems) : name_(std::move(name)), problems_(problems) {}

  Table table(const toml::table& from, Position position, std::string path, std::size_t depth) {
    Table result{.position = std::move(position), .path = std::move(path)};
    // toml++ sorts by name.
    std::vector<std::pair<const toml::key*, const toml::node*>> members;
    for (auto&& [key, node] : from) {
      if (!key.str().starts_with(kSkippedTable)) members.emplace_back(&key, &node);
    }
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
      const auto& x = a.first->source().begin;
      const auto& y = b.first->source().begin;
      return std::tuple(x.line, x.column, a.first->str()) <
             std::tuple(y.line, y.column, b.first->str());
    });
    for (const auto& [key, node] : members) {
      const std::string key_path = options_detail::join_key(result.path, key->str());
      // The position of a table is its header's line, that of a key the line where it is written.
      const auto key_line = key->source().begin.line;
      const auto node_line = node->source().begin.line;
      const std::uint32_t line = node->is_table() && node_line > 0 ? node_line : key_line;
      if (auto made = value(*node, {name_, line}, key_path, depth + 1)) {
        result.entries.push_back({std::string(key->str()), *std::move(made)});
      } else {
        result.damaged = true;  // the key is present, so it is not missing
      }
    }
    return result;
  }

 private:
  std::optional<Value> value(const toml::node& node, Position position, const std::string& path,
                             std::size_t depth) {
    if (depth > kMaxNesting) {
      problems_.add({.position = std::move(position),
                     .key = path,
                     .problem = "tables and lists are nested too deeply",
                     .allowed = std::to_string(kMaxNesting) + " levels"});
      return std::nullopt;
    }
    if (const auto* text = node.as_string()) return Value{text->get(), std::move(position)};
    if (const auto* integer = node.as_integer())
      return Value{std::int64_t{integer->get()}, std::move(position)};
    if (const auto* boolean = node.as_boolean()) return Value{boolean->get(), std::move(position)};
    if (const auto* number = node.as_floating_point()) {
      if (std::isfinite(number->get())) return Value{number->get(), std::move(position)};
      refuse(std::move(position), path, "no key accepts inf or nan",
             options_detail::default_text(number->get()));
      return std::nullopt;
    }
    if (const auto* sub = node.as_table()) {
      Table made = table(*sub, position, path, depth);
      return Value{std::move(made), std::move(position)};
    }
    if (const auto* array = node.as_array()) return list(*array, std::move(position), path, depth);
    std::ostringstream given;
    if (const auto* date = node.as_date()) given << date->get();
    if (const auto* time = node.as_time()) given << time->get();
    if (const auto* both = node.as_date_time()) given << both->get();
    refuse(std::move(position), path, "no key accepts a date or time; put a text in quotes",
           given.str());
    return std::nullopt;
  }

  std::optional<Value> list(const toml::array& array, Position position, const std::string& path,
                            std::size_t depth) {
    std::vector<Value> result;
    bool good = true;
    for (const toml::node& item : array) {
      const std::uint32_t line = item.source().begin.line;
      auto made = value(item, {name_, line > 0 ? line : position.line}, path, depth + 1);
      if (made) {
        result.push_back(*std::move(made));
      } else {
        good = false;
      }
    }
    if (!good) return std::nullopt;
    return Value{std::move(result), std::move(position)};
  }

  void refuse(Position position, const std::string& path, const std::string& why,
              std::string given) {
    problems_.add({.position = std::move(position),
                   .key = path,
                   .problem = "wrong type: " + why,
                   .given = std::move(given)});
  }

  std::string name_;
  Problems& problems_;
};

// The table that contains `line`, and its parents except the root.
void mark_damaged(Table& root, std::uint32_t line) {
  std::vector<Table*> best;
  std::vector<Table*> chain;
  const auto visit = [&](const auto& self, Table& table) -> void {
    for (TableEntry& entry : table.entries) {
      auto* sub = std::get_if<Table>(&entry.value.data);
      if (sub == nullptr || sub->position.line > line) continue;
      chain.push_back(sub);
      if (best.empty() || sub->position.line >= best.back()->position.line) best = chain;
      self(self, *sub);
      chain.pop_back();
    }
  };
  visit(visit, root);
  if (best.empty()) root.damaged = true;
  for (Table* table : best) table->damaged = true;
}

// One reading of a text. A mistake is reported and its lines are taken out. What is left is parsed
// again, so one mistake hides no other.
class Reading {
 public:
  Reading(std::string_view text, const std::string& name, Problems& problems)
      : name_(name), problems_(problems), lines_(text) {
    result_.table.position = {name, 1};
  }

  TomlText read() {
    Step step = Step::kParseAgain;
    for (int mistakes = 0; step == Step::kParseAgain; ++mistakes) step = parse_once(mistakes);
    result_.damaged |= step == Step::kGiveUp || !damaged_lines_.empty();
    if (step == Step::kGiveUp) {
      result_.table.damaged = true;
    } else {
      for (const std::uint32_t line : damaged_lines_) mark_damaged(result_.table, line);
    }
    return std::move(result_);
  }

 private:
  enum class Step { kParseAgain, kDone, kGiveUp };

  Step parse_once(int mistakes) {
    const std::string current = lines_.text();
    const Scan found = scan(current);
    if (found.unclosed > 0) {
      report(found.unclosed, full_key(lines_, found.unclosed),
             "syntax error: the closing quotes of the text that begins here are missing");
      take_out(found.unclosed, lines_.count());
      return Step::kParseAgain;
    }
    if (found.too_many_parts > 0) {
      problems_.add({.position = {name_, found.too_many_parts},
                     .problem = "a key with too many parts",
                     .allowed = "at most " + std::to_string(kMaxDottedParts) + " parts"});
      return Step::kGiveUp;
    }
    auto parsed = parse(current);
    if (const auto* tree = std::get_if<toml::table>(&parsed)) {
      result_.table = Converter(name_, problems_).table(*tree, {name_, 1}, "", 0);
      return Step::kDone;
    }
    const SyntaxError& error = std::get<SyntaxError>(parsed);
    const std::uint32_t number = std::min(error.line, lines_.count());
    if (number == 0) {
      report(0, "", "cannot be parsed: " + printable(error.description));
      return Step::kGiveUp;
    }
    if (mistakes == kMaxMistakes) {
      report(number, "", "too many mistakes; the rest of this file was not read");
      return Step::kGiveUp;
    }
    return recover(error, number);
  }

  Step recover(const SyntaxError& error, std::uint32_t number) {
    // An unclosed list extends into the next key or table, so the mistake is above. A line indented
    // more than the list's key counts as an item.
    const std::uint32_t list = open_list_line(lines_, number);
    const bool item = list > 0 && indentation(lines_.line(number)) > indentation(lines_.line(list));
    const bool has_key = !key_of(lines_.line(number)).empty();
    const bool header = !item && !has_key && is_header(lines_.line(number));
    const bool begins_something = !item && (header || has_key);
    if (begins_something && list > 0) {
      report(list, full_key(lines_, list),
             "syntax error: the list that begins here has no closing ']'");
      take_out(list, number - 1);
      return Step::kParseAgain;
    }
    if (begins_something || !follows_removed(number)) {
      Problem problem = describe(lines_, number, error, name_);
      if (!begins_something) problem.key = list > 0 ? full_key(lines_, list) : "";
      problems_.add(std::move(problem));
    }
    if (changed_.contains(number)) return Step::kGiveUp;  // no further progress is possible
    const bool duplicate = error.description.find("cannot redefine") != std::string::npos;
    if (header) {
      replace(number, std::string(kSkippedHeader) + std::to_string(number) + "\"]");
      if (!duplicate) result_.damaged = true;
    } else if (duplicate) {
      replace(number, "");
    } else {
      take_out(number, number);
    }
    return Step::kParseAgain;
  }

  void report(std::uint32_t line, std::string key, std::string problem) {
    problems_.add(
        {.position = {name_, line}, .key = std::move(key), .problem = std::move(problem)});
  }

  void replace(std::uint32_t line, const std::string& by) {
    lines_.replace(line, by);
    changed_.insert(line);
  }
  void take_out(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t line = first; line <= last; ++line) replace(line, "");
    damaged_lines_.push_back(first);
  }

  // Whether the line may be the rest of something that was removed above it.
  bool follows_removed(std::uint32_t number) const {
    const auto says_nothing = [&](std::uint32_t i) {
      return trim_line(lines_.line(i)).empty() || trim_line(lines_.line(i)).front() == '#';
    };
    std::uint32_t above = number - 1;
    while (above > 0 && !changed_.contains(above) && says_nothing(above)) --above;
    return above > 0 && changed_.contains(above);
  }

  const std::string& name_;
  Problems& problems_;
  Lines lines_;
  TomlText result_;
  std::set<std::uint32_t> changed_;
  std::vector<std::uint32_t> damaged_lines_;  // where something was that is missing now
};

}  // namespace

TomlText read_toml(std::string_view text, const std::string& name, Problems& problems) {
  return Reading(text, name, problems).read();
}

}  // namespace scriptorium

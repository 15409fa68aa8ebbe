#include "core/api/job_script.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/base/ascii.h"

namespace scriptorium {
namespace {

using namespace std::literals;

constexpr std::size_t kMaxLogicalLine = 64U << 10;

// sbatch uses isspace() in the C locale.
constexpr std::string_view kBlanks = " \t\n\v\f\r";
bool is_blank(char c) noexcept { return kBlanks.find(c) != std::string_view::npos; }

// Removes the next blank-separated word from `rest` and returns it; empty at the end.
std::string_view take_blank_word(std::string_view& rest) noexcept {
  rest = trim(rest, kBlanks);
  std::size_t end = 0;
  while (end < rest.size() && !is_blank(rest[end])) ++end;
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

bool is_name_char(char c) noexcept { return is_alphanumeric(c) || c == '_'; }

bool is_assignment(std::string_view word) noexcept {
  const std::size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 && !is_digit(word[0]) &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     is_name_char);
}

std::optional<std::string> read_interpreter(std::string_view script) {
  if (!script.starts_with("#!")) return std::nullopt;
  std::string_view line = script.substr(2, kMaxScriptItemBytes);
  line = line.substr(0, line.find('\n'));
  const std::string_view path = take_blank_word(line);
  if (path.empty()) return std::nullopt;
  std::string result(path);
  if (path.substr(path.rfind('/') + 1) != "env") return result;
  while (true) {
    std::string_view word = take_blank_word(line);
    if (word.empty()) return result;
    if (word.starts_with("-S") && word.size() > 2) word.remove_prefix(2);  // env -Spython3
    if (word == "-u" || word == "-C") {  // options of env that take a value
      take_blank_word(line);
    } else if (!word.starts_with('-') && !is_assignment(word)) {
      return result + ' ' + std::string(word);
    }
  }
}

bool is_separator(char c) noexcept {
  return c == ';' || c == '&' || c == '|' || c == '(' || c == ')';
}

// The position after the substitution that begins at `at` ("$(...)", "${...}" or "`...`"), or the
// end of the text if it is not closed.
std::size_t substitution_end(std::string_view line, std::size_t at) noexcept {
  if (line[at] == '`') {
    const std::size_t end = line.find('`', at + 1);
    return end == std::string_view::npos ? line.size() : end + 1;
  }
  const char open = line[at + 1];
  const char close = open == '(' ? ')' : '}';
  std::size_t depth = 0;
  for (std::size_t i = at + 1; i < line.size(); ++i) {
    if (line[i] == open) ++depth;
    if (line[i] == close && --depth == 0) return i + 1;
  }
  return line.size();
}

bool is_substitution(std::string_view line, std::size_t at) noexcept {
  return line[at] == '`' ||
         (line[at] == '$' && at + 1 < line.size() && (line[at + 1] == '(' || line[at + 1] == '{'));
}

// Reads one shell word at `at` and moves `at` past it. Quotes are removed, substitutions are kept
// as written. An open quote ends with the line, so that an apostrophe in a here-document affects
// only its own line.
std::string read_word(std::string_view line, std::size_t& at) {
  std::string word;
  char quote = '\0';
  while (at < line.size()) {
    const char c = line[at];
    if (quote == '\0' && (is_blank(c) || is_separator(c) || c == '<' || c == '>')) break;
    if (quote != '\'' && is_substitution(line, at)) {
      const std::size_t end = substitution_end(line, at);
      word += line.substr(at, end - at);
      at = end;
      continue;
    }
    ++at;
    if (c == '\\' && quote != '\'' && at < line.size()) {
      if (quote == '"' && line[at] != '"' && line[at] != '\\' && line[at] != '$' && line[at] != '`')
        word += c;
      word += line[at++];
    } else if (quote == c) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      word += c;
    }
  }
  return word;
}

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) noexcept {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Words that may precede a command on the same line.
constexpr std::array kBefore{"if"sv,    "then"sv, "elif"sv,    "else"sv,   "while"sv,
                             "until"sv, "do"sv,   "!"sv,       "time"sv,   "{"sv,
                             "eval"sv,  "exec"sv, "command"sv, "builtin"sv};
constexpr std::array kLoad{"load"sv, "add"sv, "try-load"sv, "try-add"sv, "load-any"sv};
constexpr std::array kSwap{"swap"sv, "switch"sv, "sw"sv};
// Commands of `ml` (Lmod and Environment Modules) that load nothing. Any other first word of `ml`
// is a module.
constexpr std::array kOther{
    "av"sv,          "avail"sv,   "apropos"sv,      "append-path"sv, "category"sv, "clear"sv,
    "config"sv,      "del"sv,     "describe"sv,     "disable"sv,     "display"sv,  "edit"sv,
    "freeze"sv,      "help"sv,    "is-avail"sv,     "is-loaded"sv,   "is-saved"sv, "is-used"sv,
    "key"sv,         "keyword"sv, "list"sv,         "mod-to-sh"sv,   "overview"sv, "ov"sv,
    "path"sv,        "paths"sv,   "prepend-path"sv, "purge"sv,       "refresh"sv,  "reload"sv,
    "remove-path"sv, "reset"sv,   "restore"sv,      "rm"sv,          "remove"sv,   "save"sv,
    "savelist"sv,    "saverm"sv,  "saveshow"sv,     "search"sv,      "show"sv,     "source"sv,
    "spider"sv,      "stash"sv,   "test"sv,         "tablelist"sv,   "unload"sv,   "unuse"sv,
    "update"sv,      "use"sv,     "whatis"sv,       "whereis"sv,     "unsource"sv, "unswap"sv,
    "initlist"sv,    "initadd"sv, "initrm"sv,       "initclear"sv,   "mcc"sv,      "cachebuild"sv,
    "cacheclear"sv,  "aliases"sv, "lint"sv,         "sh-to-mod"sv};

void add_module(const std::string& name, std::vector<std::string>& modules) {
  if (!name.empty() && name.front() != '-' && name.size() <= kMaxScriptItemBytes &&
      modules.size() < kMaxScriptItems)
    modules.push_back(name);
}

// One simple command, as words.
void read_command(const std::vector<std::string>& words, std::vector<std::string>& modules) {
  std::size_t i = 0;
  while (i < words.size() && (is_assignment(words[i]) || is_one_of(words[i], kBefore))) ++i;
  if (i == words.size() || (words[i] != "module" && words[i] != "ml")) return;
  const bool short_form = words[i] == "ml";
  ++i;
  // "module --silent load X"; but "ml -GCC" unloads GCC, and a list of modules follows.
  while (i < words.size() && words[i].starts_with('-')) ++i;
  if (i == words.size()) return;
  const std::string& action = words[i];
  if (is_one_of(action, kSwap)) {
    if (i + 1 < words.size()) add_module(words.back(), modules);  // the last one is the new module
    return;
  }
  if (is_one_of(action, kLoad)) {
    ++i;
  } else if (!short_form || is_one_of(action, kOther)) {
    return;
  }
  for (; i < words.size(); ++i) add_module(words[i], modules);
}

void read_commands(std::string_view line, std::vector<std::string>& modules) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while (at < line.size()) {
    const char c = line[at];
    if (is_blank(c)) {
      ++at;
      continue;
    }
    if (c == '#') break;
    std::size_t redirect = at;
    while (redirect < line.size() && is_digit(line[redirect])) ++redirect;
    if (c == '&' && at + 1 < line.size() && line[at + 1] == '>') redirect = at + 1;
    if (redirect < line.size() && (line[redirect] == '<' || line[redirect] == '>')) {
      at = redirect;
      while (at < line.size() &&
             (line[at] == '<' || line[at] == '>' || line[at] == '&' || line[at] == '|'))
        ++at;
      while (at < line.size() && is_blank(line[at])) ++at;
      read_word(line, at);
      continue;
    }
    if (is_separator(c)) {
      read_command(words, modules);
      words.clear();
      ++at;
      continue;
    }
    words.push_back(read_word(line, at));
  }
  read_command(words, modules);
}

bool continues(std::string_view line) noexcept {
  std::size_t backslashes = 0;
  while (backslashes < line.size() && line[line.size() - 1 - backslashes] == '\\') ++backslashes;
  return backslashes % 2 == 1;
}

std::string_view without_return(std::string_view line) noexcept {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::vector<std::string> read_modules(std::string_view script) {
  std::vector<std::string> modules;
  while (!script.empty() && modules.size() < kMaxScriptItems) {
    const std::string_view line = without_return(take_until(script, '\n'));
    // This rejects nearly every line; splitting all lines into words would cost ten times as much.
    if (line.find("module") == std::string_view::npos && line.find("ml") == std::string_view::npos)
      continue;
    if (trim(line, kBlanks).starts_with('#') || line.size() > kMaxLogicalLine) continue;
    if (!continues(line)) {
      read_commands(line, modules);
      continue;
    }
    std::string joined(line.substr(0, line.size() - 1));
    bool more = true;
    while (more && !script.empty() && joined.size() <= kMaxLogicalLine) {
      std::string_view next = without_return(take_until(script, '\n'));
      more = continues(next);
      if (more) next.remove_suffix(1);
      joined += next;
    }
    if (joined.size() <= kMaxLogicalLine) read_commands(joined, modules);
  }
  return modules;
}

}  // namespace

void for_each_directive(std::string_view script, const DirectiveSyntax& syntax,
                        const std::function<bool(std::string_view)>& use) {
  while (!script.empty()) {
    const std::string_view line = take_until(script, '\n');
    const std::string_view text = trim(line, kBlanks);
    const std::string_view candidate = syntax.indented ? text : line;
    if (!syntax.prefix.empty() && candidate.starts_with(syntax.prefix)) {
      if (!use(trim(candidate.substr(syntax.prefix.size()), kBlanks))) return;
      continue;
    }
    const bool skipped =
        text.empty() || text.front() == '#' || (syntax.colon_lines && line.front() == ':');
    if (!skipped) return;
  }
}

std::vector<std::string> split_directive(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size() && words.size() < kMaxScriptItems; ++i) {
    const char c = text[i];
    if (quote == '\0' && c == '#') break;
    if (quote == '\0' && is_blank(c)) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
      continue;
    }
    in_word = true;
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
    } else if (quote == c) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      word += c;
    }
  }
  if (in_word) words.push_back(std::move(word));
  return words;
}

ScriptInfo read_script_info(std::string_view script, const DirectiveSyntax& syntax) {
  ScriptInfo info;
  info.interpreter = read_interpreter(script);
  for_each_directive(script, syntax, [&](std::string_view text) {
    if (!text.empty() && text.size() <= kMaxScriptItemBytes) info.directives.emplace_back(text);
    return info.directives.size() < kMaxScriptItems;
  });
  info.modules = read_modules(script);
  return info;
}

}  // namespace scriptorium

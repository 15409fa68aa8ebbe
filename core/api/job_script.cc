#include "core/api/job_script.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/api/script_software.h"
#include "core/base/ascii.h"

namespace scriptorium {
namespace {

using namespace std::literals;

// Removes the next blank-separated word from `rest` and returns it; empty at the end.
std::string_view take_blank_word(std::string_view& rest) noexcept {
  rest = trim(rest, kScriptBlanks);
  std::size_t end = 0;
  while (end < rest.size() && !is_script_blank(rest[end])) ++end;
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

bool is_name_char(char c) noexcept { return is_alphanumeric(c) || c == '_'; }

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

// ---- directives

constexpr std::string_view kBsub = "#BSUB";
constexpr std::string_view kPbs = "#PBS";
constexpr std::size_t kMostOtherLines = 100;

// What follows in a script that has several components belongs to the next one.
bool begins_component(std::string_view word) noexcept {
  return word == "hetjob" || word == "packjob";
}

// Calls use(words) for the directives of the first component, until it returns false.
void for_each_own_words(std::string_view script, const DirectiveSyntax& syntax,
                        const std::function<bool(const std::vector<std::string>&)>& use) {
  std::size_t lines = 0;
  for_each_directive(script, syntax, [&](std::string_view text) {
    if (text.size() > kMaxScriptItemBytes) return true;
    std::vector<std::string> words = split_directive(text);
    const auto end = std::find_if(words.begin(), words.end(), begins_component);
    const bool last = end != words.end();
    words.erase(end, words.end());
    return use(words) && !last && ++lines < kMaxScriptItems;
  });
}

// Options may be abbreviated: "--ig".
bool ignores_translated(std::string_view script, const DirectiveSyntax& syntax) {
  bool ignores = false;
  for_each_own_words(script, syntax, [&](const std::vector<std::string>& words) {
    ignores = std::any_of(words.begin(), words.end(), [](std::string_view word) {
      return word.size() >= "--ig"sv.size() && "--ignore-pbs"sv.starts_with(word);
    });
    return !ignores;
  });
  return ignores;
}

struct Translated {
  std::string_view prefix;
  std::vector<std::string_view> texts;  // trimmed; some may be empty
};

Translated translated_directives(std::string_view script, const DirectiveSyntax& syntax) {
  Translated bsub{.prefix = kBsub, .texts = {}};
  Translated pbs{.prefix = kPbs, .texts = {}};
  if (!syntax.translated || (script.find("BSUB") == std::string_view::npos &&
                             script.find("PBS") == std::string_view::npos))
    return pbs;
  if (ignores_translated(script, syntax)) return pbs;
  std::size_t others = 0;
  while (!script.empty() && others <= kMostOtherLines) {
    const std::string_view line = take_until(script, '\n');
    for (Translated* const found : {&bsub, &pbs}) {
      if (line.starts_with(found->prefix) && found->texts.size() < kMaxScriptItems)
        found->texts.push_back(trim(line.substr(found->prefix.size()), kScriptBlanks));
    }
    if (!line.starts_with('#')) ++others;
  }
  return bsub.texts.empty() ? pbs : bsub;
}

// An option that takes a value, as getopt_long() finds it.
struct NameOption {
  char letter;
  std::string_view flags;    // letters that take no value, and may stand before it: "-HJ name"
  std::string_view name;     // "--job-name"; "" = none
  std::size_t shortest = 0;  // abbreviation of it that is not ambiguous
};
constexpr NameOption kSbatchName{'J', "hHIkOQsuvVW", "--job-name", "--job"sv.size()};
constexpr NameOption kBsubName{'J', "x", "--job_name", "--j"sv.size()};
constexpr NameOption kPbsName{'N', "fhInVXxz", "--job_name", "--job_n"sv.size()};

// Sets `name` to the option's last value.
void find_name(const std::vector<std::string>& words, const NameOption& option,
               std::optional<std::string>& name) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word.starts_with("--")) {
      const std::string_view given = word.substr(0, word.find('='));
      if (given.size() < option.shortest || !option.name.starts_with(given)) continue;
      if (given.size() < word.size()) {
        name = std::string(word.substr(given.size() + 1));
      } else if (i + 1 < words.size()) {
        name = words[++i];
      }
      continue;
    }
    if (!word.starts_with('-')) continue;
    const std::size_t letter = word.find_first_not_of(option.flags, 1);
    if (letter == std::string_view::npos || word[letter] != option.letter) continue;
    if (letter + 1 < word.size()) {
      name = std::string(word.substr(letter + 1));
    } else if (i + 1 < words.size()) {
      name = words[++i];
    }
  }
}

}  // namespace

bool is_assignment(std::string_view word) noexcept {
  const std::size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 && !is_digit(word[0]) &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     is_name_char);
}

void for_each_directive(std::string_view script, const DirectiveSyntax& syntax,
                        const std::function<bool(std::string_view)>& use) {
  while (!script.empty()) {
    const std::string_view line = take_until(script, '\n');
    const std::string_view text = trim(line, kScriptBlanks);
    const std::string_view candidate = syntax.indented ? text : line;
    if (!syntax.prefix.empty() && candidate.starts_with(syntax.prefix)) {
      if (!use(trim(candidate.substr(syntax.prefix.size()), kScriptBlanks))) return;
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
    if (quote == '\0' && is_script_blank(c)) {
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
  const Translated translated = translated_directives(script, syntax);
  for (const std::string_view text : translated.texts) {
    if (!text.empty() && text.size() <= kMaxScriptItemBytes &&
        info.directives.size() < kMaxScriptItems)
      info.directives.push_back(std::string(translated.prefix).append(" ").append(text));
  }
  UsedSoftware used = read_software(script);
  info.modules = std::move(used.modules);
  info.software = std::move(used.software);
  return info;
}

std::optional<std::string> job_name_directive(std::string_view script,
                                              const DirectiveSyntax& syntax) {
  std::optional<std::string> name;  // the last one wins
  const NameOption& own = syntax.prefix == kPbs ? kPbsName : kSbatchName;
  for_each_own_words(script, syntax, [&](const std::vector<std::string>& words) {
    find_name(words, own, name);
    return true;
  });
  const Translated translated = translated_directives(script, syntax);
  std::vector<std::string> words;  // an option's value may be on the next line
  for (const std::string_view text : translated.texts) {
    if (text.size() > kMaxScriptItemBytes) continue;
    for (std::string& word : split_directive(text)) words.push_back(std::move(word));
  }
  find_name(words, translated.prefix == kBsub ? kBsubName : kPbsName, name);
  if (name && (name->empty() || name->size() > kMaxJobName)) return std::nullopt;
  return name;
}

}  // namespace scriptorium

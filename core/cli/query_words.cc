#include "core/cli/query_words.h"

#include <algorithm>

#include "core/base/text.h"

namespace scriptorium::cli {
namespace {

// How many words an option takes together with this one; 0: it is no option.
std::size_t words_of_option(const CommandModel& search, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return 0;
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> long_names;
  for (const OptionModel& option : search.options) {
    if (option.positional) continue;
    for (const std::string& known : option.names) {
      if (known == name) return option.value.empty() || word != name ? 1 : 2;
      if (known.starts_with("--")) long_names.push_back(known);
    }
  }
  const bool context =
      word.starts_with("-C") && word.find_first_not_of("0123456789", 2) == std::string::npos;
  if (context) return 1;
  return word.starts_with("--") && word == name && did_you_mean(name, long_names) ? 1 : 0;
}

const CommandModel* search_of(const CommandModel& root) {
  for (const CommandModel& command : root.commands) {
    if (command.name == "search") return &command;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> query_words_last(const std::vector<std::string>& words,
                                          const CommandModel& root) {
  std::size_t begin = 0;
  while (begin < words.size() && words[begin].starts_with('-'))
    begin += words[begin] == "-c" || words[begin] == "--config" ? 2 : 1;
  const CommandModel* search = search_of(root);
  if (search == nullptr || begin >= words.size() || words[begin] != "search") return words;

  const auto at = words.begin() + static_cast<std::ptrdiff_t>(begin) + 1;
  std::vector<std::string> options(words.begin(), at);
  std::vector<std::string> query;
  for (auto word = at; word != words.end();) {
    if (*word == "--") {
      query.insert(query.end(), word + 1, words.end());
      break;
    }
    const auto count = static_cast<std::ptrdiff_t>(words_of_option(*search, *word));
    if (count == 0) {
      query.push_back(*word++);
      continue;
    }
    const auto end = word + std::min(count, words.end() - word);
    options.insert(options.end(), word, end);
    word = end;
  }
  if (query.empty()) return options;
  options.emplace_back("--");
  options.insert(options.end(), query.begin(), query.end());
  return options;
}

}  // namespace scriptorium::cli

#include "core/mail/texts.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <variant>

#include "core/base/ascii.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/config/config_file.h"
#include "core/config/toml_reader.h"
#include "core/mail/shipped_texts.h"

namespace scriptorium::mail {
namespace {

using Sentences = std::map<std::string, TextTemplate, std::less<>>;
// The {names} that each sentence may use.
using Fields = std::map<std::string, std::set<std::string>, std::less<>>;

constexpr std::string_view kEnglish = "en";

std::string file_name(std::string_view language) { return std::string(language) + ".toml"; }

const ShippedText* shipped(std::string_view language) {
  for (const ShippedText& file : shipped_texts()) {
    if (file.name == file_name(language)) return &file;
  }
  return nullptr;
}

bool is_there(const std::string& file) {
  std::error_code error;
  return std::filesystem::status(file, error).type() != std::filesystem::file_type::not_found;
}

// Calls `each` with the key and value of every entry of the file's tables.
template <typename Each>
void for_each_entry(const Table& file, Problems& problems, Each each) {
  static const std::vector<std::string> kTables = {"mail", "findings"};
  for (const TableEntry& entry : file.entries) {
    const auto* table = std::get_if<Table>(&entry.value.data);
    if (table == nullptr || std::ranges::find(kTables, entry.key) == kTables.end()) {
      problems.add({.position = entry.value.position,
                    .key = printable(entry.key, 100),
                    .problem = table == nullptr ? "unknown key" : "unknown table",
                    .allowed = "[mail], [findings]",
                    .did_you_mean = did_you_mean(entry.key, kTables).value_or("")});
      continue;
    }
    for (const TableEntry& sentence : table->entries)
      each(entry.key + "." + sentence.key, sentence.value);
  }
}

// Those of the shipped English sentence. "jobs_one" may use what "jobs_many" has, and the reverse.
Fields fields_of(const Table& english) {
  Fields fields;
  Problems none;  // a test shows that the shipped files have none
  for_each_entry(english, none, [&](const std::string& key, const Value& value) {
    const auto& text = std::get<std::string>(value.data);
    std::set<std::string>& names = fields[key];
    for (std::size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1))
      names.insert(text.substr(at + 1, text.find('}', at) - at - 1));
  });
  for (auto& [key, names] : fields) {
    if (!key.ends_with("_one")) continue;
    std::set<std::string>& many = fields[key.substr(0, key.size() - 3) + "many"];
    many.insert(names.begin(), names.end());
    names = many;
  }
  return fields;
}

// Replaces the sentences that the file has, and returns their keys.
std::set<std::string> apply(const Table& file, const Fields& fields, Sentences& into,
                            Problems& problems) {
  std::vector<std::string> keys;
  for (const auto& [key, names] : fields) keys.push_back(key);
  std::set<std::string> applied;
  for_each_entry(file, problems, [&](const std::string& key, const Value& value) {
    const auto add = [&](std::string problem, std::string allowed, std::string near = {}) {
      problems.add({.position = value.position,
                    .key = printable(key, 100),
                    .problem = std::move(problem),
                    .allowed = std::move(allowed),
                    .given = value.text(),
                    .did_you_mean = std::move(near)});
    };
    const auto names = fields.find(key);
    if (names == fields.end()) {
      return add("unknown key", "those of the shipped en.toml",
                 key.size() > 100 ? "" : did_you_mean(key, keys).value_or(""));
    }
    const auto* sentence = std::get_if<std::string>(&value.data);
    if (sentence == nullptr) return add("wrong type", "string");
    std::string line = *sentence;  // a header and the breaking of lines need it on one
    std::ranges::replace_if(line, [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
    const std::vector<std::string_view> allowed(names->second.begin(), names->second.end());
    auto parsed = TextTemplate::parse(line, allowed);
    if (!parsed) return add(parsed.error().message(), "");
    into[key] = *std::move(parsed);
    applied.insert(key);
  });
  return applied;
}

Table table_of(const ShippedText& file, Problems& problems) {
  return read_toml(file.text, "shipped/" + std::string(file.name), problems).table;
}

}  // namespace

bool is_language(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 16 &&
         std::ranges::all_of(text, [](char c) { return is_alphanumeric(c) || c == '-'; });
}

Texts Texts::load(const std::string& language, const std::string& folder, Problems& problems) {
  Texts texts;
  texts.language_ = kEnglish;
  const auto of_site = [&](std::string_view name, Problems& found) -> std::optional<Table> {
    const std::string file = join_path(folder, file_name(name));
    if (folder.empty() || !is_there(file)) return std::nullopt;
    const auto text = read_config_file(file, "", found);
    return text ? std::optional(read_toml(*text, file, found).table) : std::nullopt;
  };

  const bool english = language == kEnglish;
  Problems ignored;  // of the English sentences, which are reported where English is loaded
  Problems& of_english = english ? problems : ignored;
  const Table shipped_english = table_of(*shipped(kEnglish), of_english);
  const Fields fields = fields_of(shipped_english);
  apply(shipped_english, fields, texts.sentences_, of_english);
  if (const auto site = of_site(kEnglish, of_english))
    apply(*site, fields, texts.sentences_, of_english);
  if (english) return texts;

  const ShippedText* file = is_language(language) ? shipped(language) : nullptr;
  const auto site = is_language(language) ? of_site(language, problems) : std::nullopt;
  if (file == nullptr && !site) {
    const std::vector<std::string> names = languages(folder);
    std::string allowed;
    for (const std::string& name : names) allowed += (allowed.empty() ? "" : ", ") + name;
    problems.add({.position = {.file = join_path(folder, file_name(printable(language, 16)))},
                  .key = "language",
                  .problem = "there are no sentences in this language; the English ones are used",
                  .allowed = allowed,
                  .given = options_detail::quote(printable(language, 16))});
    return texts;
  }
  texts.language_ = language;
  std::set<std::string> complete;
  if (file != nullptr)
    complete = apply(table_of(*file, problems), fields, texts.sentences_, problems);
  if (site) complete.merge(apply(*site, fields, texts.sentences_, problems));
  for (const auto& [key, names] : fields) {
    if (complete.contains(key)) continue;
    problems.add({.position = site ? Position{site->position.file}
                                   : Position{"shipped/" + std::string(file->name)},
                  .key = key,
                  .problem = "missing; the English sentence is used"});
  }
  return texts;
}

std::vector<std::string> Texts::languages(const std::string& folder) {
  std::set<std::string> names;
  for (const ShippedText& file : shipped_texts())
    names.emplace(file.name.substr(0, file.name.find('.')));
  Problems ignored;  // load() reports them
  bool complete = true;
  if (!folder.empty()) {
    for (const std::string& file : toml_files(folder, ignored, complete)) {
      const std::string name = std::filesystem::path(file).stem();
      if (is_language(name)) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

std::string Texts::text(std::string_view key, const Values& values) const {
  const auto found = sentences_.find("mail." + std::string(key));
  if (found == sentences_.end()) return {};
  return found->second.expand([&](std::string_view field) {
    const auto value = values.find(field);
    return value == values.end() ? std::string{} : value->second;
  });
}

std::string Texts::counted(std::string_view key, std::uint64_t count, Values values) const {
  values.insert_or_assign("count", std::to_string(count));
  return text(std::string(key) + (count == 1 ? "_one" : "_many"), values);
}

std::string Texts::finding(std::string_view id) const {
  const auto found = sentences_.find("findings." + std::string(id));
  return found == sentences_.end() ? "" : found->second.fixed_text();
}

}  // namespace scriptorium::mail

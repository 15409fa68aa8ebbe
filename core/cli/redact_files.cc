#include "core/cli/redact_files.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/redact_text.h"
#include "core/redact/expression.h"
#include "core/redact/redactor.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using redact::Finding;
using redact::Mode;
using redact::RuleSet;

constexpr std::uint64_t kMostBytes = std::uint64_t{128} << 20;  // as max_file_bytes

// One thing to show of a file.
struct Item {
  std::uint32_t line = 1;  // of an environment: its number among the strings
  std::size_t offset = 0;
  std::string rule;
  std::string about;
  std::string text;  // without secrets
  bool kept = false;
  std::string why_not;  // only nearly found
};

// Finds what to show in one text.
class Finder {
 public:
  Finder(const RulesInForce& rules, std::shared_ptr<const RuleSet> looser, const Console& console)
      : rules_(rules), looser_(std::move(looser)), console_(console) {}

  std::vector<Item> in_script(std::string_view text) const {
    std::vector<Item> items;
    add(text, rules_.rules->find(rules_.mode, redact::Place::kScript, text),
        near(redact::Place::kScript, text, 0), 0, items);
    return items;
  }

  // `ended_by`: NUL or newline.
  std::vector<Item> in_environment(std::string_view text, char ended_by) const {
    std::vector<Item> items;
    std::uint32_t number = 0;
    while (!text.empty()) {
      const std::string_view entry = text.substr(0, text.find(ended_by));
      text.remove_prefix(std::min(entry.size() + 1, text.size()));
      if (!entry.empty()) in_variable(entry, ++number, items);
    }
    return items;
  }

 private:
  void in_variable(std::string_view entry, std::uint32_t number, std::vector<Item>& items) const {
    const std::size_t equals = entry.find('=', 1);
    const std::size_t value = equals == std::string_view::npos ? 0 : equals + 1;
    std::vector<Finding> found;
    std::vector<Finding> nearly;
    if (value > 0 && value < entry.size() &&
        rules_.rules->is_denied(entry.substr(0, equals), entry.substr(value))) {
      const redact::Rule* rule = rules_.rules->rule(redact::kNameRule);
      if (rule != nullptr)
        found.push_back(
            {.rule = rule,
             .begin = value,
             .end = entry.size(),
             .kept = rules_.mode == Mode::kFlag || rule->action == redact::Action::kFlag});
    } else {
      found = rules_.rules->find(rules_.mode, redact::Place::kValue, entry.substr(value));
      for (Finding& f : found) {
        f.begin += value;
        f.end += value;
      }
      nearly = near(redact::Place::kValue, entry.substr(value), value);
    }
    add(entry, std::move(found), std::move(nearly), number, items);
  }

  std::vector<Finding> near(redact::Place place, std::string_view text, std::size_t offset) const {
    if (looser_ == nullptr) return {};
    std::vector<Finding> found = looser_->find(Mode::kStrict, place, text);
    for (Finding& f : found) {
      f.begin += offset;
      f.end += offset;
    }
    return found;
  }

  // Why the rules in force do not remove what the looser ones find; "" = they do.
  std::string why_not(std::string_view text, const Finding& nearly) const {
    const redact::Rule* rule = rules_.rules->rule(nearly.rule->name);
    if (rule == nullptr) return "";
    if (rule->strict && rules_.mode != Mode::kStrict) return "only with --mode strict";
    const double entropy = redact::entropy_of(text.substr(nearly.begin, nearly.end - nearly.begin));
    if (entropy < rule->entropy) {
      std::array<char, 80> words{};
      std::snprintf(words.data(), words.size(), "too regular: %.1f bits per character, not %.1f",
                    entropy, rule->entropy);
      return words.data();
    }
    return rule->allow.empty() ? "" : "on the rule's allow list";
  }

  // `number` 0: each finding has a line of its own.
  void add(std::string_view text, std::vector<Finding> found, std::vector<Finding> nearly,
           std::uint32_t number, std::vector<Item>& items) const {
    std::erase_if(nearly, [&](const Finding& n) {
      const auto next = std::ranges::upper_bound(found, n.begin, {}, &Finding::end);
      return next != found.end() && next->begin < n.end;
    });
    std::vector<Finding> all = found;
    all.insert(all.end(), nearly.begin(), nearly.end());
    const MaskedText masked(text, all);
    const auto show = [&](const Finding& f, std::string why) {
      items.push_back({.line = number > 0 ? number : f.line,
                       .offset = f.begin,
                       .rule = f.rule->name,
                       .about = f.rule->about,
                       .text = masked.line_of(f, console_, number > 0),
                       .kept = f.kept,
                       .why_not = std::move(why)});
    };
    for (const Finding& f : found) show(f, "");
    for (const Finding& n : nearly) {
      if (std::string why = why_not(text, n); !why.empty()) show(n, std::move(why));
    }
    if (number == 0) std::ranges::sort(items, {}, &Item::offset);
  }

  const RulesInForce& rules_;
  const std::shared_ptr<const RuleSet> looser_;
  const Console& console_;
};

Result<std::string> read_input(const std::string& file, Console& console) {
  if (file != "-") return read_file(file, kMostBytes);
  std::string text{std::istreambuf_iterator<char>(console.in), {}};
  if (console.in.bad()) return Error{ErrorKind::kTransient, "standard input: cannot be read"};
  return text;
}

// NUL-ended, as in the archive.
std::string nul_ended(std::string text) {
  if (text.find('\0') != std::string::npos) return text;
  std::ranges::replace(text, '\n', '\0');
  return text;
}

void show(const std::string& file, const std::vector<Item>& items, const Console& console) {
  for (const Item& item : items) {
    console.out << console.bold(printable(file) + ":" + std::to_string(item.line)) << ": ";
    if (item.why_not.empty()) {
      console.out << console.yellow(item.rule) << ": what looks like " << printable(item.about)
                  << (item.kept ? " (reported, but kept)" : "");
    } else {
      console.out << "kept, not " << item.rule << ": " << item.why_not;
    }
    console.out << "\n    " << item.text << "\n";
  }
}

void add_json(const std::string& file, const std::vector<Item>& items, Json& list) {
  for (const Item& item : items) {
    Json json = {{"file", file},
                 {"line", item.line},
                 {"rule", item.rule},
                 {"about", item.about},
                 {"kept", item.kept || !item.why_not.empty()},
                 {"text", item.text}};
    if (!item.why_not.empty()) json["why_kept"] = item.why_not;
    list.push_back(std::move(json));
  }
}

// As it would be archived.
Result<std::string> redacted(std::string text, const Arguments& arguments,
                             const RulesInForce& rules) {
  const redact::Redactor redactor(rules.rules, rules.mode, EnvironmentRule{});
  Event event;
  event.kind = "job.script";
  event.environment_format = EnvironmentFormat::kNulEnded;
  event.files.push_back({.name = arguments.environment ? "environment" : "script",
                         .bytes = make_bytes(std::move(text))});
  if (auto done = redactor.redact(event); !done) return done.error();
  return *event.files.front().bytes;
}

}  // namespace

int redact_files(const Arguments& arguments, RulesInForce rules, Console& console) {
  // A site that looks for nothing should not make a user believe that there is nothing.
  if (rules.mode == Mode::kOff) rules.mode = Mode::kDefault;
  const Finder finder(rules, arguments.explain ? looser_rules(rules) : nullptr, console);
  Json list = Json::array();
  bool unreadable = false;
  bool malformed = false;
  std::uint64_t count = 0;
  for (const std::string& file : arguments.files) {
    auto text = read_input(file, console);
    if (!text) {
      unreadable = true;
      console.err << "scriptorium: " << printable(text.error().message()) << "\n";
      continue;
    }
    if (arguments.environment && text->find('=') == std::string::npos && !text->empty()) {
      malformed = true;
      console.err << "scriptorium: " << printable(file) << ": no NAME=value in it\n";
      continue;
    }
    const char ended_by = text->find('\0') != std::string::npos ? '\0' : '\n';
    const std::vector<Item> items =
        arguments.environment ? finder.in_environment(*text, ended_by) : finder.in_script(*text);
    count += static_cast<std::uint64_t>(
        std::ranges::count_if(items, [](const Item& item) { return item.why_not.empty(); }));
    if (arguments.print) {
      auto kept = redacted(arguments.environment ? nul_ended(*std::move(text)) : *std::move(text),
                           arguments, rules);
      if (!kept) return fail(console, kept.error().message(), kExitSoftware);
      if (ended_by == '\n' && arguments.environment) std::ranges::replace(*kept, '\0', '\n');
      console.out << *kept;
    } else if (arguments.json) {
      add_json(file, items, list);
    } else {
      show(file, items, console);
    }
  }
  if (arguments.json)
    console.out << list.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  if (unreadable) return kExitNoInput;
  if (malformed) return kExitDataError;
  return count > 0 ? kExitFound : kExitGood;
}

}  // namespace scriptorium::cli

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/options.h"
#include "core/redact/rule.h"

namespace scriptorium::redact {

// A secret in a text.
struct Finding {
  const Rule* rule = nullptr;  // of the RuleSet
  std::size_t begin = 0;       // offsets into the text, as it was given
  std::size_t end = 0;
  std::uint32_t line = 1;  // of `begin`, counted from 1
  bool kept = false;       // it is only reported: Mode::kFlag, or the rule's action
};

// The rules of a site, compiled: one table of all keywords, and an expression for each rule that
// runs only where one of its keywords is. Immutable.
//
// Threads: any.
// Time:    linear in the text, whatever it holds.
class RuleSet {
 public:
  virtual ~RuleSet() = default;

  // The shipped rules, changed and extended by the files *.toml of `directory` in name order; none
  // if there is no such directory. Whatever is wrong (a file that cannot be read, an expression
  // that does not compile, an unknown name, an example that its rule does not pass) is added to
  // `problems` with file, line and key; the result then must not be used.
  static std::shared_ptr<const RuleSet> load(const std::string& directory, Problems& problems);
  // The same from files in memory; without the shipped rules.
  static std::shared_ptr<const RuleSet> make(std::vector<RuleFile> files, Problems& problems);

  // Those that are not switched off, in order of their names; with the rules that are in no file.
  virtual const std::vector<const Rule*>& rules() const noexcept = 0;
  virtual const Rule* rule(std::string_view name) const noexcept = 0;  // null: none, or off
  // Changes with every change of a rule. It must stay in the process: who has it could try guesses
  // at a site's words.
  virtual const std::string& fingerprint() const noexcept = 0;

  // The secrets in a text, in order and without overlap. `mode` is not kOff. Throws bad_alloc and
  // nothing else; beyond kMostFindings the last finding goes to the end of the text.
  virtual std::vector<Finding> find(Mode mode, Place place, std::string_view text) const = 0;
  // Whether the value of a variable is never kept because of its name. What only names the place of
  // a secret (API_KEY_FILE=/run/key) or a column (SORT_KEY=name) is kept, unless the site denies
  // it.
  virtual bool is_denied(std::string_view name, std::string_view value) const = 0;
  bool is_denied(std::string_view name) const { return is_denied(name, "?"); }

  static constexpr std::size_t kMostFindings = 10'000;
};

// The shipped rules: the files of core/redact/rules/, which are compiled in.
std::vector<RuleFile> shipped_rules();

// "[redacted:RULE]"
std::string replacement_of(const Rule& rule);

}  // namespace scriptorium::redact

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/redact/rule_set.h"

// One text of a job on its way through the rules.
namespace scriptorium::redact {

// A stretch of a text that a rule names.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  const Rule* rule = nullptr;
  bool kept = false;  // only reported
  bool cut = false;   // nothing takes its place
};

// A text with what was found in it. Borrows the text and the rules.
class Part {
 public:
  enum class Kind : std::uint8_t {
    kScript,
    kVariables,    // NAME=value strings, each ended by NUL; also such a file with damage
    kAssignments,  // a record with NAME=value in it, between commas, lines or tags
    kText,
  };
  // `put` takes the text without its secrets; it is not called if nothing changes.
  Part(std::string where, Kind kind, std::string_view text, std::function<void(std::string)> put)
      : where_(std::move(where)), kind_(kind), text_(text), put_(std::move(put)) {}

  void find(const RuleSet& rules, Mode mode);
  // Adds each place where one of the secrets occurs as a separate word.
  void find_copies(const std::vector<std::string_view>& secrets, const Rule& rule);

  // What was found and would be a secret elsewhere in the job too.
  void list_secrets(std::vector<std::string_view>& into) const;
  // Puts the text without its secrets, and adds what was found, an item for each rule.
  void finish(std::vector<Redaction>& into);

 private:
  void find_in_variables(const RuleSet& rules, Mode mode);
  void drop_variable(std::size_t first, std::size_t begin, std::size_t end);
  void find_assignments(const RuleSet& rules, Mode mode);
  // In the text from `begin` on, which is a place of its own.
  void find_in(const RuleSet& rules, Mode mode, Place place, std::size_t begin, std::size_t end);
  void add_denied(const RuleSet& rules, Mode mode, std::size_t begin, std::size_t end);
  void put_in_order();
  std::string edited() const;
  void report(std::vector<Redaction>& into) const;

  std::string where_;
  Kind kind_;
  std::string_view text_;
  std::function<void(std::string)> put_;
  std::vector<Span> spans_;
};

}  // namespace scriptorium::redact

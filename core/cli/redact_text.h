#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/console.h"
#include "core/redact/rule_set.h"

// Texts with secrets, made fit for a screen. Pure.
namespace scriptorium::cli {

// What is shown in the place of a secret: four stars, after its first two characters if it has at
// least 12. Its length does not show.
std::string masked_secret(std::string_view secret);

struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// A text with secrets in it, shown line by line without them and without copies of the first fifty.
// Borrows the text. Memory and time: by the findings; a line by what is shown of it.
class MaskedText {
 public:
  MaskedText(std::string_view text, const std::vector<redact::Finding>& findings);

  // The line in which `found` begins; long lines only near it. `whole`: the text is one value, and
  // is not split into lines.
  std::string line_of(const redact::Finding& found, const Console& console,
                      bool whole = false) const;

 private:
  // In order and without overlap.
  std::vector<TextRange> secrets_in(TextRange part) const;

  const std::string_view text_;
  std::vector<TextRange> found_;
  std::vector<std::string_view> copied_;
  std::size_t longest_ = 0;  // of these
};

// A short text, such as a path, without what the rules find in it.
std::string masked_text(std::string_view text, const redact::RuleSet& rules);

}  // namespace scriptorium::cli

#include "core/redact/name_patterns.h"

#include <algorithm>

#include "core/base/ascii.h"
#include "core/base/text.h"

namespace scriptorium::redact {

std::string longest_literal(std::string_view glob) {
  std::string longest;
  std::string current;
  const auto finish = [&] {
    if (current.size() > longest.size()) longest = current;
    current.clear();
  };
  for (std::size_t i = 0; i < glob.size(); ++i) {
    if (glob[i] == '[') break;  // what follows a set is rarely worth finding its end
    if (glob[i] == '*' || glob[i] == '?') {
      finish();
    } else {
      if (glob[i] == '\\' && i + 1 < glob.size()) ++i;
      current += glob[i];
    }
  }
  finish();
  return longest;
}

NamePatterns::NamePatterns(const std::vector<RuleFile>& files) {
  std::vector<std::string> literals;
  site_from_ = static_cast<std::size_t>(std::ranges::find_if_not(files, &RuleFile::is_shipped) -
                                        files.begin());
  for (std::size_t file = 0; file < files.size(); ++file) {
    for (const std::string& glob : files[file].allow_names)
      allow_.push_back({to_lower(glob), file, false});
    for (const std::string& glob : files[file].deny_names) {
      literals.push_back(longest_literal(to_lower(glob)));
      deny_.push_back({to_lower(glob), file, !literals.back().empty()});
      all_have_literals_ &= deny_.back().has_literal;
    }
  }
  literals_ = KeywordTable(literals);
}

bool NamePatterns::is_allowed(const std::string& lower_name, std::size_t first_file) const {
  return std::any_of(allow_.begin(), allow_.end(), [&](const Pattern& pattern) {
    return pattern.file >= first_file && glob_match(pattern.glob, lower_name);
  });
}

bool NamePatterns::is_allowed(std::string_view name) const {
  return !allow_.empty() && is_allowed(to_lower(name), 0);
}

bool NamePatterns::is_denied(std::string_view name, std::size_t first_file) const {
  std::vector<std::size_t> candidates;
  literals_.scan(name, [&](std::size_t pattern, std::size_t) {
    candidates.push_back(pattern);
    return true;
  });
  if (candidates.empty() && all_have_literals_) return false;
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  const std::string lower = to_lower(name);
  // The last file that denies the name decides which files may allow it.
  for (std::size_t n = deny_.size(); n-- > 0;) {
    if (deny_[n].file < first_file) return false;
    const bool candidate =
        !deny_[n].has_literal || std::binary_search(candidates.begin(), candidates.end(), n);
    if (candidate && glob_match(deny_[n].glob, lower)) return !is_allowed(lower, deny_[n].file);
  }
  return false;
}

}  // namespace scriptorium::redact

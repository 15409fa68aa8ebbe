#include "core/query/environment_diff.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/api/event.h"

namespace scriptorium::query {
namespace {

using Variables = std::map<std::string_view, std::string_view>;

Variables variables_of(std::string_view environment) {
  Variables variables;
  for (const Variable& variable : split_environment(environment))
    variables[variable.name] = variable.value;
  return variables;
}

std::vector<std::string> elements_of(std::string_view value) {
  std::vector<std::string> elements;
  while (true) {
    const std::size_t end = value.find(':');
    elements.emplace_back(value.substr(0, end));
    if (end == std::string_view::npos) return elements;
    value.remove_prefix(end + 1);
  }
}

// PATH, LD_LIBRARY_PATH, LOADEDMODULES, ...: elements between colons, of which at least one value
// has two. An address or a time also has a colon, so a name that says so or a path is needed.
bool is_list(std::string_view name, std::string_view before, std::string_view after) {
  if (name == "LOADEDMODULES" || name == "_LMFILES_") return true;
  if (!name.ends_with("PATH") && !name.ends_with("DIRS") && !name.ends_with("FILES_")) return false;
  return before.find(':') != std::string_view::npos || after.find(':') != std::string_view::npos;
}

VariableChange change_of(std::string_view name, const std::string_view* before,
                         const std::string_view* after) {
  VariableChange change{.name = std::string(name)};
  if (before != nullptr) change.before = std::string(*before);
  if (after != nullptr) change.after = std::string(*after);
  if (before == nullptr || after == nullptr || !is_list(name, *before, *after)) return change;
  ListChange elements = list_diff(elements_of(*before), elements_of(*after));
  change.is_list = true;
  change.removed = std::move(elements.removed);
  change.added = std::move(elements.added);
  return change;
}

}  // namespace

bool is_session_variable(std::string_view name) {
  static constexpr std::array<std::string_view, 15> kNames{
      "_",         "OLDPWD",     "SHLVL",
      "STY",       "TERM",       "TERM_PROGRAM",
      "COLUMNS",   "LINES",      "WINDOW",
      "WINDOWID",  "DISPLAY",    "XAUTHORITY",
      "LS_COLORS", "KRB5CCNAME", "DBUS_SESSION_BUS_ADDRESS"};
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  return name.starts_with("SSH_") || name.starts_with("XDG_SESSION") || name.starts_with("TMUX") ||
         name.starts_with("VSCODE_") || name == "XDG_RUNTIME_DIR";
}

ListChange list_diff(const std::vector<std::string>& before,
                     const std::vector<std::string>& after) {
  const auto missing = [](const std::vector<std::string>& of, const std::vector<std::string>& in) {
    std::map<std::string_view, std::size_t> have;
    for (const std::string& item : in) ++have[item];
    std::vector<std::string> result;
    for (const std::string& item : of) {
      const auto found = have.find(item);
      if (found != have.end() && found->second > 0) {
        --found->second;
      } else {
        result.push_back(item);
      }
    }
    return result;
  };
  return {missing(before, after), missing(after, before)};
}

std::vector<VariableChange> environment_diff(std::string_view before, std::string_view after) {
  const Variables old_variables = variables_of(before);
  const Variables new_variables = variables_of(after);
  std::vector<VariableChange> changes;
  auto a = old_variables.begin();
  auto b = new_variables.begin();
  while (a != old_variables.end() || b != new_variables.end()) {
    if (b == new_variables.end() || (a != old_variables.end() && a->first < b->first)) {
      changes.push_back(change_of(a->first, &a->second, nullptr));
      ++a;
    } else if (a == old_variables.end() || b->first < a->first) {
      changes.push_back(change_of(b->first, nullptr, &b->second));
      ++b;
    } else {
      if (a->second != b->second) changes.push_back(change_of(a->first, &a->second, &b->second));
      ++a;
      ++b;
    }
  }
  return changes;
}

}  // namespace scriptorium::query

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::query {

// What happened to one variable. Absent: the variable was not set.
struct VariableChange {
  std::string name;
  std::optional<std::string> before;
  std::optional<std::string> after;
  // For a list such as PATH (elements between colons): what went and what came, in order. Empty if
  // the variable is no list, or only the order of its elements changed.
  std::vector<std::string> removed;
  std::vector<std::string> added;
  bool is_list = false;
};

// Both are NUL-ended NAME=value strings; the last of several values counts. By name.
std::vector<VariableChange> environment_diff(std::string_view before, std::string_view after);

// True for a variable that differs between two logins of one user and says nothing about a job:
// SSH_CLIENT, XDG_SESSION_ID, TMUX, ...
bool is_session_variable(std::string_view name);

// Elements of one list that the other lacks, in their order, each as often as it is missing.
struct ListChange {
  std::vector<std::string> removed;
  std::vector<std::string> added;
  bool any() const noexcept { return !removed.empty() || !added.empty(); }
};
ListChange list_diff(const std::vector<std::string>& before, const std::vector<std::string>& after);

}  // namespace scriptorium::query

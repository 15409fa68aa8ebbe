#include "core/redact/keyword_table.h"

#include <algorithm>
#include <limits>

#include "core/base/ascii.h"

namespace scriptorium::redact {
namespace {

constexpr std::uint32_t kNoState = std::numeric_limits<std::uint32_t>::max();

unsigned char byte_of(char c) noexcept { return static_cast<unsigned char>(c); }

// The tree of the keywords' prefixes, and for each prefix its longest proper suffix that is a
// prefix as well.
struct PrefixTree {
  struct State {
    std::uint32_t suffix = 0;
    std::vector<std::uint32_t> found;  // keywords that end here
  };

  explicit PrefixTree(std::uint32_t classes) : width(classes) { add_state(); }

  std::uint32_t add_state() {
    states.emplace_back();
    next.resize(next.size() + width, kNoState);
    return static_cast<std::uint32_t>(states.size() - 1);
  }
  std::uint32_t& at(std::uint32_t state, std::uint32_t column) {
    return next[std::size_t{state} * width + column];
  }

  // In order of length, so that the suffix of a state is complete before the state.
  void complete() {
    std::vector<std::uint32_t> order = {0};
    for (std::size_t n = 0; n < order.size(); ++n) {
      const std::uint32_t state = order[n];
      for (std::uint32_t column = 0; column < width; ++column) {
        const std::uint32_t fallback = state == 0 ? 0 : at(states[state].suffix, column);
        std::uint32_t& target = at(state, column);
        if (target == kNoState) {
          target = fallback;
          continue;
        }
        states[target].suffix = fallback;
        const auto& inherited = states[fallback].found;
        states[target].found.insert(states[target].found.end(), inherited.begin(), inherited.end());
        order.push_back(target);
      }
    }
  }

  std::uint32_t width;
  std::vector<State> states;
  std::vector<std::uint32_t> next;
};

}  // namespace

KeywordTable::KeywordTable(const std::vector<std::string>& keywords) {
  for (const std::string& keyword : keywords) {
    for (const char c : keyword) {
      std::uint8_t& column = class_[byte_of(to_lower(c))];
      if (column == 0) column = static_cast<std::uint8_t>(classes_++);
    }
  }
  for (char c = 'A'; c <= 'Z'; ++c) class_[byte_of(c)] = class_[byte_of(to_lower(c))];

  PrefixTree tree(classes_);
  for (std::size_t n = 0; n < keywords.size(); ++n) {
    std::uint32_t state = 0;
    for (const char c : keywords[n]) {
      const std::uint32_t column = class_[byte_of(c)];
      if (tree.at(state, column) == kNoState) {
        const std::uint32_t added = tree.add_state();
        tree.at(state, column) = added;
      }
      state = tree.at(state, column);
    }
    if (state != 0) tree.states[state].found.push_back(static_cast<std::uint32_t>(n));
  }
  tree.complete();

  // Final states come last, so that one comparison recognises them.
  std::vector<std::uint32_t> row(tree.states.size());
  std::uint32_t rows = 0;
  for (const bool final_states : {false, true}) {
    if (final_states) first_final_ = rows * classes_;
    for (std::size_t state = 0; state < row.size(); ++state) {
      const auto& found = tree.states[state].found;
      if (found.empty() == final_states) continue;
      row[state] = rows++ * classes_;
      if (!final_states) continue;
      found_begin_.push_back(static_cast<std::uint32_t>(found_.size()));
      found_.insert(found_.end(), found.begin(), found.end());
    }
  }
  found_begin_.push_back(static_cast<std::uint32_t>(found_.size()));
  next_.resize(tree.next.size());
  for (std::size_t state = 0; state < row.size(); ++state) {
    for (std::uint32_t column = 0; column < classes_; ++column)
      next_[row[state] + column] = row[tree.at(static_cast<std::uint32_t>(state), column)];
  }
}

}  // namespace scriptorium::redact

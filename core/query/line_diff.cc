#include "core/query/line_diff.h"

#include <algorithm>
#include <cstdint>

namespace scriptorium::query {
namespace {

using Lines = std::vector<std::string_view>;

// Rows of Paths grow with each difference; more than these would take more than 16 MiB.
constexpr std::ptrdiff_t kMostDifferences = 2000;

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

// The furthest reaching paths of Myers' algorithm, one row for each number of differences. Rows
// are kept for the way back.
class Paths {
 public:
  Paths(const Lines& a, const Lines& b) : a_(a), b_(b), n_(std::ssize(a)), m_(std::ssize(b)) {}

  // Which line of `b` each line of `a` is (SIZE_MAX: none); false if there are too many
  // differences.
  bool find(std::vector<std::size_t>& partner) {
    const std::ptrdiff_t most = std::min(n_ + m_, kMostDifferences);
    for (std::ptrdiff_t d = 0; d <= most; ++d) {
      rows_.emplace_back(static_cast<std::size_t>(2 * d + 1));
      for (std::ptrdiff_t k = -d; k <= d; k += 2) {
        const std::ptrdiff_t x = follow(k, begin_of(d, k));
        at(d, k) = static_cast<std::int32_t>(x);
        if (x >= n_ && x - k >= m_) {
          trace(d, partner);
          return true;
        }
      }
    }
    return false;
  }

 private:
  std::int32_t& at(std::ptrdiff_t d, std::ptrdiff_t k) {
    return rows_[static_cast<std::size_t>(d)][static_cast<std::size_t>(k + d)];
  }
  // True if the best path to diagonal k with d differences ends with an added line.
  bool is_down(std::ptrdiff_t d, std::ptrdiff_t k) {
    return k == -d || (k != d && at(d - 1, k - 1) < at(d - 1, k + 1));
  }
  std::ptrdiff_t begin_of(std::ptrdiff_t d, std::ptrdiff_t k) {
    if (d == 0) return 0;
    return is_down(d, k) ? at(d - 1, k + 1) : at(d - 1, k - 1) + 1;
  }
  std::ptrdiff_t follow(std::ptrdiff_t k, std::ptrdiff_t x) const {
    while (x < n_ && x - k < m_ && x >= 0 && x - k >= 0 && same(x, x - k)) ++x;
    return x;
  }
  bool same(std::ptrdiff_t x, std::ptrdiff_t y) const {
    return a_[static_cast<std::size_t>(x)] == b_[static_cast<std::size_t>(y)];
  }
  void trace(std::ptrdiff_t d, std::vector<std::size_t>& partner) {
    std::ptrdiff_t x = n_;
    std::ptrdiff_t k = n_ - m_;
    for (; d >= 0; --d) {
      const std::ptrdiff_t begin = begin_of(d, k);
      for (; x > begin; --x)
        partner[static_cast<std::size_t>(x - 1)] = static_cast<std::size_t>(x - 1 - k);
      if (d == 0) break;
      const bool down = is_down(d, k);
      x = down ? begin : begin - 1;
      k = down ? k + 1 : k - 1;
    }
  }

  const Lines& a_;
  const Lines& b_;
  std::ptrdiff_t n_;
  std::ptrdiff_t m_;
  std::vector<std::vector<std::int32_t>> rows_;
};

// Which line of `b` each line of `a` is; SIZE_MAX: none.
std::vector<std::size_t> partners(const Lines& a, const Lines& b) {
  const std::size_t least = std::min(a.size(), b.size());
  std::size_t prefix = 0;
  while (prefix < least && a[prefix] == b[prefix]) ++prefix;
  std::size_t suffix = 0;
  while (suffix < least - prefix && a[a.size() - 1 - suffix] == b[b.size() - 1 - suffix]) ++suffix;

  std::vector<std::size_t> partner(a.size(), SIZE_MAX);
  for (std::size_t i = 0; i < prefix; ++i) partner[i] = i;
  for (std::size_t i = 0; i < suffix; ++i) partner[a.size() - 1 - i] = b.size() - 1 - i;
  const auto middle = [&](const Lines& lines) {
    return Lines(lines.begin() + static_cast<std::ptrdiff_t>(prefix),
                 lines.end() - static_cast<std::ptrdiff_t>(suffix));
  };
  const Lines old_middle = middle(a);
  const Lines new_middle = middle(b);
  std::vector<std::size_t> inner(old_middle.size(), SIZE_MAX);
  if (!Paths(old_middle, new_middle).find(inner)) return partner;
  for (std::size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != SIZE_MAX) partner[prefix + i] = prefix + inner[i];
  }
  return partner;
}

}  // namespace

std::vector<LineEdit> line_diff(std::string_view old_text, std::string_view new_text) {
  const Lines a = lines_of(old_text);
  const Lines b = lines_of(new_text);
  std::vector<std::size_t> partner = partners(a, b);
  const bool only_newline = a == b && old_text != new_text && !a.empty();
  if (only_newline) partner.back() = SIZE_MAX;
  std::vector<LineEdit> edits;
  std::size_t j = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (partner[i] == SIZE_MAX) {
      edits.push_back({EditKind::kRemoved, i + 1, 0, a[i]});
      continue;
    }
    for (; j < partner[i]; ++j) edits.push_back({EditKind::kAdded, 0, j + 1, b[j]});
    edits.push_back({EditKind::kSame, i + 1, j + 1, a[i]});
    ++j;
  }
  for (; j < b.size(); ++j) edits.push_back({EditKind::kAdded, 0, j + 1, b[j]});
  return edits;
}

DiffCount count_edits(const std::vector<LineEdit>& edits) {
  DiffCount count;
  for (const LineEdit& edit : edits) {
    count.removed += edit.kind == EditKind::kRemoved ? 1 : 0;
    count.added += edit.kind == EditKind::kAdded ? 1 : 0;
  }
  return count;
}

std::vector<Hunk> hunks_of(const std::vector<LineEdit>& edits, std::size_t context) {
  std::vector<Hunk> hunks;
  std::size_t old_lines = 0;  // before edit i
  std::size_t new_lines = 0;
  std::size_t end = 0;  // of the last hunk, in edits
  std::vector<std::pair<std::size_t, std::size_t>> before;
  for (const LineEdit& edit : edits) {
    before.emplace_back(old_lines, new_lines);
    old_lines += edit.kind == EditKind::kAdded ? 0 : 1;
    new_lines += edit.kind == EditKind::kRemoved ? 0 : 1;
  }
  const auto take = [&](std::size_t until) {
    Hunk& hunk = hunks.back();
    for (; end < until; ++end) {
      hunk.edits.push_back(edits[end]);
      hunk.old_lines += edits[end].kind == EditKind::kAdded ? 0 : 1;
      hunk.new_lines += edits[end].kind == EditKind::kRemoved ? 0 : 1;
    }
  };
  for (std::size_t i = 0; i < edits.size(); ++i) {
    if (edits[i].kind == EditKind::kSame) continue;
    const std::size_t begin = i > context ? i - context : 0;
    if (hunks.empty() || begin > end) {
      end = begin;
      hunks.push_back({before[begin].first + 1, 0, before[begin].second + 1, 0, {}});
    }
    take(std::min(edits.size(), i + 1 + context));
  }
  return hunks;
}

std::string hunk_head(const Hunk& hunk) {
  // diff(1) gives the line before an empty range.
  const auto range = [](std::size_t begin, std::size_t lines) {
    return std::to_string(lines == 0 ? begin - 1 : begin) +
           (lines == 1 ? "" : "," + std::to_string(lines));
  };
  return "@@ -" + range(hunk.old_begin, hunk.old_lines) + " +" +
         range(hunk.new_begin, hunk.new_lines) + " @@";
}

}  // namespace scriptorium::query

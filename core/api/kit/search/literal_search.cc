#include "core/api/kit/search/literal_search.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/api/query.h"
#include "core/base/ascii.h"

namespace scriptorium {
namespace {

// Bytes of job scripts from the most to the least frequent, letters without their case. All others
// are rare.
constexpr std::string_view kFrequent =
    " etaoinsrlcdpumh/_-=gbf.\n0$\"12#vwy{}kx3456789,:';()z\\jq><&|+*@[]%!?~^`\t";

constexpr std::array<std::uint8_t, 256> kCommonness = [] {
  std::array<std::uint8_t, 256> table{};
  for (std::size_t i = 0; i < kFrequent.size(); ++i) {
    const auto value = static_cast<std::uint8_t>(255 - 3 * i);
    table[static_cast<unsigned char>(kFrequent[i])] = value;
    if (is_lower(kFrequent[i])) table[static_cast<unsigned char>(kFrequent[i] - 0x20)] = value;
  }
  return table;
}();

// gcc and clang compile these to the machine's own vectors, on x86-64 and arm64 alike.
using Vector = unsigned char __attribute__((vector_size(16)));
constexpr std::size_t kWidth = sizeof(Vector);
using Halves = std::array<std::uint64_t, 2>;

Vector load(const char* from) noexcept {
  Vector vector;
  std::memcpy(&vector, from, kWidth);
  return vector;
}

Vector filled(unsigned char value) noexcept {
  Vector vector{};
  return vector + value;
}

bool any(const Vector& vector) noexcept {
  const auto halves = std::bit_cast<Halves>(vector);
  return (halves[0] | halves[1]) != 0;
}

bool edge_holds(LiteralSearch::Edge edge, std::string_view bytes, std::size_t beside) noexcept {
  // Before the first byte, `beside` has wrapped around.
  const bool inside = beside < bytes.size();
  switch (edge) {
    case LiteralSearch::Edge::kAny: return true;
    case LiteralSearch::Edge::kWord: return !inside || !is_word_byte(bytes[beside]);
    case LiteralSearch::Edge::kBlank:
      return inside && (bytes[beside] == ' ' || bytes[beside] == '\t');
  }
  return true;
}

}  // namespace

LiteralSearch::LiteralSearch(std::string_view text, Edge before, Edge after)
    : folded_(to_lower(text)), masks_(text.size(), '\0'), before_(before), after_(after) {
  std::size_t rarest = 0;
  std::size_t second = folded_.size() > 1 ? 1 : 0;
  const auto commonness = [&](std::size_t i) {
    return kCommonness[static_cast<unsigned char>(folded_[i])];
  };
  for (std::size_t i = 0; i < folded_.size(); ++i) {
    if (is_letter(folded_[i])) masks_[i] = 0x20;
    if (commonness(i) < commonness(rarest)) rarest = i;
  }
  if (second == rarest) second = 0;
  for (std::size_t i = 0; i < folded_.size(); ++i) {
    if (i != rarest && commonness(i) < commonness(second)) second = i;
  }
  const auto probe = [&](std::size_t i) {
    return Probe{i, static_cast<unsigned char>(folded_[i]), static_cast<unsigned char>(masks_[i])};
  };
  probes_ = {probe(rarest), probe(second)};
}

unsigned LiteralSearch::commonness() const noexcept {
  return static_cast<unsigned>(kCommonness[probes_[0].folded]) + kCommonness[probes_[1].folded];
}

bool LiteralSearch::is_at(std::string_view bytes, std::size_t position, Budget& budget) const {
  if (!edge_holds(before_, bytes, position - 1) ||
      !edge_holds(after_, bytes, position + folded_.size())) {
    return false;
  }
  std::size_t i = 0;
  while (i < folded_.size() && static_cast<char>(bytes[position + i] | masks_[i]) == folded_[i]) {
    ++i;
  }
  if (budget.left < i) {
    budget.exhausted = true;
    return true;
  }
  budget.left -= i;
  return i == folded_.size();
}

std::optional<std::size_t> LiteralSearch::find(std::string_view bytes, std::size_t from,
                                               Budget& budget) const {
  if (bytes.size() < folded_.size() || from > bytes.size() - folded_.size()) return std::nullopt;
  const std::size_t end = bytes.size() - folded_.size() + 1;  // no occurrence begins here or later
  const Probe& a = probes_[0];
  const Probe& b = probes_[1];
  const Vector folded_a = filled(a.folded);
  const Vector folded_b = filled(b.folded);
  const Vector mask_a = filled(a.mask);
  const Vector mask_b = filled(b.mask);
  const auto candidates = [&](std::size_t at) -> Vector {
    return ((load(bytes.data() + at + a.offset) | mask_a) == folded_a) &
           ((load(bytes.data() + at + b.offset) | mask_b) == folded_b);
  };
  const auto first_of = [&](std::size_t at, const Vector& hits) -> std::optional<std::size_t> {
    std::array<unsigned char, kWidth> each{};
    const auto halves = std::bit_cast<Halves>(hits);
    if constexpr (std::endian::native == std::endian::little) {
      for (std::size_t half = 0; half < halves.size(); ++half) {
        for (std::uint64_t left = halves[half]; left != 0;) {
          const auto byte = static_cast<std::size_t>(std::countr_zero(left)) / 8;
          left &= ~(std::uint64_t{0xff} << (byte * 8));
          if (const std::size_t position = at + half * 8 + byte; is_at(bytes, position, budget))
            return position;
        }
      }
    } else {
      std::memcpy(each.data(), &hits, kWidth);
      for (std::size_t i = 0; i < kWidth; ++i) {
        if (each[i] != 0 && is_at(bytes, at + i, budget)) return at + i;
      }
    }
    return std::nullopt;
  };
  std::size_t at = from;
  for (; at + 4 * kWidth <= end; at += 4 * kWidth) {
    const std::array<Vector, 4> hits{candidates(at), candidates(at + kWidth),
                                     candidates(at + 2 * kWidth), candidates(at + 3 * kWidth)};
    if (!any((hits[0] | hits[1]) | (hits[2] | hits[3]))) continue;
    for (std::size_t i = 0; i < hits.size(); ++i) {
      if (!any(hits[i])) continue;
      if (const auto found = first_of(at + i * kWidth, hits[i])) return found;
    }
  }
  for (; at + kWidth <= end; at += kWidth) {
    const Vector hits = candidates(at);
    if (!any(hits)) continue;
    if (const auto found = first_of(at, hits)) return found;
  }
  for (; at < end; ++at) {
    if (static_cast<unsigned char>(bytes[at + a.offset] | a.mask) == a.folded &&
        is_at(bytes, at, budget)) {
      return at;
    }
  }
  return std::nullopt;
}

}  // namespace scriptorium

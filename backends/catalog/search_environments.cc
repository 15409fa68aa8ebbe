#include "backends/catalog/search_environments.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace scriptorium::catalog {
namespace {

// With so few places left of a block, each is searched by itself.
constexpr std::size_t kFewOfPlaces = 8;

// Where the leaf may hold at or after `from`, in texts side by side.
std::optional<std::size_t> find_possible(const Condition::Leaf& leaf, std::string_view bytes,
                                         std::size_t from) {
  if (leaf.text) return leaf.text->find_possible(bytes, from);
  if (!leaf.literal) return from;
  LiteralSearch::Budget budget{.left = 8 * bytes.size() + 4096};
  return leaf.literal->find(bytes, from, budget);
}

// Walks the places of a block by their bytes.
class PlaceCursor {
 public:
  explicit PlaceCursor(const Block& block) : block_(block), end_(end_of(0)) {}

  // The place of a byte at or after the last one asked for; beyond the last place: its number.
  std::size_t at(std::size_t position) {
    while (place_ < block_.size() && end_ <= position) end_ = end_of(++place_);
    return place_;
  }
  std::size_t end() const noexcept { return end_; }  // of the current place

 private:
  std::size_t end_of(std::size_t place) const {
    if (place >= block_.size()) return block_.all().size();
    const std::string_view text = block_[place];
    return static_cast<std::size_t>(text.data() + text.size() - block_.all().data());
  }

  const Block& block_;
  std::size_t place_ = 0;
  std::size_t end_;
};

// The same at or after `from` in one text; before it, the leaf does not hold.
bool holds_from(const Condition::Leaf& leaf, std::string_view text, std::size_t from) {
  if (leaf.query.kind == Query::Kind::kText) return leaf.text->find(text, from).has_value();
  return leaf.holds_in(text);
}

IdSet places_of(const Condition::Leaf& leaf, const Block& block, const IdSet& places) {
  IdSet found;
  const auto look_at = [&](std::int64_t place) {
    if (leaf.holds_in(block[static_cast<std::size_t>(place)])) found.add(place);
  };
  const std::string_view all = block.all();
  if (leaf.query.kind == Query::Kind::kExpression && !leaf.text->may_match(all)) return found;
  if (leaf.holds_for_empty || places.size() * kFewOfPlaces < block.size()) {
    places.for_each(look_at);
    return found;
  }
  PlaceCursor cursor(block);
  for (auto at = find_possible(leaf, all, 0); at; at = find_possible(leaf, all, cursor.end())) {
    const std::size_t place = cursor.at(*at);
    if (place >= block.size()) break;
    const std::string_view text = block[place];
    const std::size_t begin = cursor.end() - text.size();
    const auto id = static_cast<std::int64_t>(place);
    if (places.has(id) && holds_from(leaf, text, std::max(*at, begin) - begin)) found.add(id);
  }
  return found;
}

}  // namespace

BlockLeaves::BlockLeaves(const Condition& condition, Condition::Source source, const Block& block)
    : leaves_(condition.leaves().size()), size_(block.size()) {
  const IdSet all = IdSet::below(block.size());
  truths_ = condition.decide_all(all, [&](std::size_t index, const IdSet& places) {
    const Condition::Leaf& leaf = condition.leaves()[index];
    if (leaf.source != source) return Truths{places, {}};
    const IdSet found = places_of(leaf, block, places);
    leaves_[index] |= found;
    return Truths{found, found};
  });
  if (truths_.possible.empty()) leaves_ = {};
}

const BlockLeaves* EnvironmentLeaves::of_block(std::int64_t block) {
  if (const auto known = known_.find(block); known != known_.end()) return &known->second;
  const auto row = reader_.scan_block(block);
  if (!row) return nullptr;
  return &known_.try_emplace(block, condition_, Condition::Source::kEnvironment, row->block)
              .first->second;
}

}  // namespace scriptorium::catalog

#include "backends/catalog/frequent_words.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "backends/catalog/block.h"
#include "backends/catalog/words.h"
#include "core/base/ascii.h"

namespace scriptorium::catalog {
namespace {

// A word of fewer blocks than one in so many leaves few of them to look at.
constexpr std::size_t kFrequentShare = 16;
constexpr std::size_t kLeastBlocks = 8;
constexpr std::size_t kMostFrequentWords = 2048;
// Of 250,000 jobs, the bits of a word take some 24 KB until they are packed.
constexpr std::size_t kWordsAtOnce = 512;
// A list of 33 million scripts, more than a segment has; a larger one is damaged.
constexpr std::size_t kMostListBytes = std::size_t{4} << 20;

// The blocks that have a word, which is_indexed_byte() alone.
IdSet blocks_with(sqlite::Connection& db, const std::string& word) {
  IdSet blocks;
  sqlite::Statement select(db, "SELECT rowid FROM words WHERE words MATCH ?");
  select.bind("\"" + word + "\"");
  while (select.step()) blocks.add(select.integer(0));
  return blocks;
}

class PlacesReader {
 public:
  explicit PlacesReader(sqlite::Connection& db)
      : select_(db, "SELECT list FROM places WHERE id = ?") {}
  void add(std::int64_t block, FrequentLists& to) {
    if (select_.bind(block).step()) to.add(block, select_.text(0));
    select_.reset();
  }

 private:
  sqlite::Statement select_;
};

std::string pack_list(const std::string& bits, const std::vector<std::int64_t>& unsure,
                      const std::optional<std::string>& after = {}) {
  const std::string ids = pack_ids(unsure);
  std::vector<std::string_view> contents{bits, ids};
  if (after) contents.push_back(*after);
  return pack_block(contents, kFinishedLevel);
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (take_until(list, ' ') == word) return true;
  }
  return false;
}

}  // namespace

WordPairs::WordPairs(const std::vector<std::string>& words) {
  for (const std::string& word : words) numbers_.try_emplace(word, numbers_.size());
  pairs_.resize(numbers_.size() * numbers_.size());
}

template <typename Use>
void WordPairs::for_each_pair(const Block& scripts, Use use) const {
  for (std::size_t place = 0; place < scripts.size(); ++place) {
    auto before = numbers_.end();
    for_each_word(scripts[place], [&](std::string_view word) {
      const auto found = numbers_.find(word);
      if (before != numbers_.end() && found != numbers_.end())
        use(before->second * numbers_.size() + found->second);
      before = found;
    });
  }
}

void WordPairs::add(std::string_view first, std::string_view second) {
  const auto before = numbers_.find(first);
  const auto found = numbers_.find(second);
  if (before != numbers_.end() && found != numbers_.end())
    pairs_[before->second * numbers_.size() + found->second] = true;
}

void WordPairs::add(const Block& scripts) {
  for_each_pair(scripts, [&](std::size_t pair) { pairs_[pair] = true; });
}

bool WordPairs::has_all_of(const Block& scripts) const {
  bool all = true;
  for_each_pair(scripts, [&](std::size_t pair) { all = all && pairs_[pair]; });
  return all;
}

std::string WordPairs::after(std::string_view first) const {
  std::vector<std::string_view> words;
  const auto before = numbers_.find(first);
  for (const auto& [word, number] : numbers_) {
    if (before != numbers_.end() && pairs_[before->second * numbers_.size() + number])
      words.push_back(word);
  }
  std::ranges::sort(words);
  std::string list;
  for (const std::string_view word : words) (list += word) += ' ';
  return list;
}

void FrequentLists::add(std::int64_t id, std::string_view places) {
  const std::size_t parts = parts_of(places);
  if (parts == 0) return;
  const std::int64_t begin = first.back();
  for (auto& [text, word] : words) {
    if (!word.blocks.has(id)) continue;
    const auto [possible, certain] = scripts_with(places, text);
    if (certain != possible) word.unsure.push_back(static_cast<std::int64_t>(blocks.size()));
    for (std::size_t part = possible._Find_first(); part < parts; part = possible._Find_next(part))
      word.scripts.add(begin + static_cast<std::int64_t>(part));
  }
  blocks.push_back(id);
  first.push_back(begin + static_cast<std::int64_t>(parts));
}

FrequentWordsWriter::FrequentWordsWriter(sqlite::Connection& db) {
  db.execute("DELETE FROM frequent");
  sqlite::Statement select(db, "SELECT id FROM script_blocks WHERE NOT young ORDER BY id");
  select.bind();
  while (select.step()) blocks_.push_back(select.integer(0));
  if (blocks_.size() >= kLeastBlocks) choose_words(db);
}

void FrequentWordsWriter::choose_words(sqlite::Connection& db) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  db.execute(
      "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab(main, words, row)");
  {
    sqlite::Statement select(db, "SELECT doc, term FROM temp.vocabulary WHERE doc >= ?");
    select.bind(std::max(kLeastBlocks, blocks_.size() / kFrequentShare));
    while (select.step()) {
      const std::string_view word = select.text(1);
      if (!word.empty() && is_indexed_byte(word.front()))
        found.emplace_back(select.number(0), word);
    }
  }
  db.execute("DROP TABLE temp.vocabulary");
  std::ranges::sort(found, std::greater());
  if (found.size() > kMostFrequentWords) found.resize(kMostFrequentWords);
  for (auto& [blocks, word] : found) words_left_.push_back(std::move(word));
  pairs_.emplace(words_left_);
}

// A block that cannot be read must be looked at, whatever the words.
void FrequentWordsWriter::add_pairs(sqlite::Statement& data_of_block, std::int64_t block) {
  const auto scripts = data_of_block.bind(block).step()
                           ? Block::unpack(data_of_block.text(0))
                           : Result<Block>(Error{ErrorKind::kCorrupt, "is missing"});
  data_of_block.reset();
  scripts ? pairs_->add(*scripts) : pairs_.reset();
}

bool FrequentWordsWriter::step(sqlite::Connection& db, SteadyTime end) {
  const auto has_time = [&] { return db.ok() && std::chrono::steady_clock::now() < end; };
  const auto write = [&](std::string_view word, const std::string& list) {
    db.run("INSERT INTO frequent VALUES(?, ?)", sqlite::Blob{word}, sqlite::Large{list});
  };
  PlacesReader places(db);
  sqlite::Statement data_of_block(db, "SELECT data FROM blocks WHERE id = ?");
  auto& words = lists_.words;
  while (has_time()) {
    if (!words_left_.empty() && next_block_ == 0 && words.size() < kWordsAtOnce) {
      IdSet blocks = blocks_with(db, words_left_.back());
      words[std::move(words_left_.back())].blocks = std::move(blocks);
      words_left_.pop_back();
    } else if (words.empty()) {
      break;
    } else if (next_block_ < blocks_.size()) {
      if (first_.empty() && pairs_) add_pairs(data_of_block, blocks_[next_block_]);
      places.add(blocks_[next_block_++], lists_);
    } else {
      const auto& [text, word] = *words.begin();
      write(text, pack_list(word.scripts.bits(), word.unsure,
                            pairs_ ? std::optional(pairs_->after(text)) : std::nullopt));
      words.erase(words.begin());
      if (words.empty()) end_round();
    }
  }
  if (!db.ok() || !words.empty() || !words_left_.empty()) return false;
  if (first_.size() == blocks_.size() + 1) {
    write(kFrequentBlocks, pack_list({}, blocks_));
    write(kFrequentFirst, pack_list({}, first_));
  }
  return db.ok();
}

// All rounds cover the same blocks, else the numbers of scripts differ.
void FrequentWordsWriter::end_round() {
  FrequentLists done = std::exchange(lists_, {});
  next_block_ = 0;
  if (first_.empty()) {
    blocks_ = std::move(done.blocks);
    first_ = std::move(done.first);
  } else if (done.blocks != blocks_) {
    first_.clear();
    words_left_.clear();
  }
}

FrequentWords::FrequentWords(sqlite::Connection& db)
    : db_(db), select_(db, "SELECT scripts FROM frequent WHERE word = ?") {}

std::optional<Block> FrequentWords::list(std::string_view word) {
  const bool found = select_.bind(sqlite::Blob{word}).step();
  auto block = found ? Block::unpack(select_.text(0), kMostListBytes) : Result<Block>(Block());
  select_.reset();
  if (!block || block->size() < 2) return std::nullopt;
  return *std::move(block);
}

std::optional<std::vector<std::int64_t>> FrequentWords::ids(std::string_view name) {
  const auto packed = list(name);
  return packed ? unpack_ids((*packed)[1]) : std::nullopt;
}

IdSet FrequentWords::blocks_without(const Need& need) {
  IdSet without;
  const auto blocks = ids(kFrequentBlocks);
  const auto first = ids(kFrequentFirst);
  if (!blocks || !first || first->size() != blocks->size() + 1) return without;
  // A phrase asks for each of its words more than once.
  std::map<std::string, std::optional<Block>> known;
  const auto list_of = [&](const std::string& word) -> const std::optional<Block>& {
    const auto [place, is_new] = known.try_emplace(word);
    if (is_new) place->second = list(word);
    return place->second;
  };
  const auto with_word = [&](const std::string& word) {
    const auto& found = list_of(word);
    return found ? IdSet::of_bits((*found)[0]) : IdSet::all();
  };
  const auto without_word = [&](const std::string& word) {
    const auto& found = list_of(word);
    const auto unsure = found ? unpack_ids((*found)[1]) : std::nullopt;
    if (!unsure) return IdSet::all();
    IdSet scripts = ~IdSet::of_bits((*found)[0]);
    for (const std::int64_t number : *unsure) {
      const auto block = static_cast<std::size_t>(number);
      if (block >= blocks->size()) return IdSet::all();
      for (std::int64_t script = (*first)[block]; script < (*first)[block + 1]; ++script)
        scripts.add(script);
    }
    return scripts;
  };
  const auto with_pair = [&](const std::string& word, const std::string& second) {
    const auto& found = list_of(word);
    const bool is_known = found && found->size() > 2 && list_of(second);
    return is_known && !has_word((*found)[2], second) ? IdSet() : IdSet::all();
  };
  const IdSet scripts = scripts_for(need, with_word, without_word, with_pair);
  for (std::size_t i = 0; i < blocks->size(); ++i) {
    if (!scripts.has_any((*first)[i], (*first)[i + 1])) without.add((*blocks)[i]);
  }
  return without;
}

bool FrequentWords::check() {
  if (!db_.integer("SELECT 1 FROM meta WHERE key = 'frequent'") ||
      !db_.integer("SELECT 1 FROM frequent"))
    return true;
  const auto blocks = ids(kFrequentBlocks);
  const auto first = ids(kFrequentFirst);
  if (!blocks || !first) return false;
  std::vector<std::string> left = words();
  PlacesReader places(db_);
  while (!left.empty()) {
    FrequentLists right;
    for (; !left.empty() && right.words.size() < kWordsAtOnce; left.pop_back())
      right.words[left.back()].blocks = blocks_with(db_, left.back());
    for (const std::int64_t block : *blocks) places.add(block, right);
    if (right.blocks != *blocks || right.first != *first) return false;
    for (const auto& [text, word] : right.words) {
      const auto found = list(text);
      if (!found || (*found)[0] != word.scripts.bits() || (*found)[1] != pack_ids(word.unsure))
        return false;
    }
  }
  return true;
}

std::vector<std::string> FrequentWords::words() {
  std::vector<std::string> words;
  sqlite::Statement select(db_, "SELECT word FROM frequent");
  select.bind();
  while (select.step()) {
    if (select.text(0) != kFrequentBlocks && select.text(0) != kFrequentFirst)
      words.emplace_back(select.text(0));
  }
  return words;
}

void FrequentWords::load_pairs() {
  covered_ = ids(kFrequentBlocks).value_or(std::vector<std::int64_t>{});
  const std::vector<std::string> all = words();
  WordPairs pairs(all);
  for (const std::string& word : all) {
    const auto found = list(word);
    if (!found || found->size() < 3) return;
    for (std::string_view rest = (*found)[2]; !rest.empty();)
      pairs.add(word, take_until(rest, ' '));
  }
  pairs_ = std::move(pairs);
}

bool FrequentWords::have_pairs_of(std::int64_t id, const Block& scripts) {
  if (!covered_) load_pairs();
  return !pairs_ || !std::ranges::binary_search(*covered_, id) || pairs_->has_all_of(scripts);
}

}  // namespace scriptorium::catalog

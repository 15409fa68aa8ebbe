#include "core/api/kit/search/similarity.h"

#include <algorithm>
#include <limits>

#include "core/api/query.h"
#include "core/base/ascii.h"

namespace scriptorium {
namespace {

// A script that is longer is data for the most part, and its beginning tells what it is.
constexpr std::size_t kMostBytes = 256U << 10;
constexpr std::size_t kWordsOfARun = 3;
constexpr std::size_t kBytesOfNumber = sizeof(std::uint32_t);

// Of made families (tests/backends/catalog/families_test.cc) five edits leave 0.44 of the runs and
// more, two scripts of one name have 0.1 at most, two programs in one template 0.85 at most.
constexpr double kSimilarUnderOneName = 0.28;
constexpr double kSimilarWhenRenamed = 0.93;

// splitmix64 (Steele, Lea, Flood 2014): every bit of the input changes half of the output.
constexpr std::uint64_t mixed(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// The hash functions are (factor * x + shift) >> 32 (Dietzfelbinger 1996).
struct HashFunction {
  std::uint64_t factor = 1;
  std::uint64_t shift = 0;
};
constexpr auto kFunctions = [] {
  std::array<HashFunction, 32> functions;
  for (std::size_t i = 0; i < functions.size(); ++i)
    functions.at(i) = {.factor = mixed(2 * i) | 1U, .shift = mixed(2 * i + 1)};
  return functions;
}();

constexpr std::uint64_t kNumberWord = 1;  // of whatever digits

class Signer {
 public:
  void word(std::uint64_t hash) noexcept {
    // 00:10:00 and 1-00:00:00 are one number.
    if (hash == kNumberWord && last_ == kNumberWord) return;
    words_ = {words_[1], words_[2], hash};
    last_ = hash;
    if (++seen_ >= kWordsOfARun) add();
  }
  ScriptSignature end() noexcept {
    if (seen_ > 0 && seen_ < kWordsOfARun) add();
    if (signature_.runs == 0) signature_.minima.fill(0);
    return signature_;
  }
  Signer() noexcept { signature_.minima.fill(std::numeric_limits<std::uint32_t>::max()); }

 private:
  void add() noexcept {
    const std::uint64_t hash = mixed(mixed(mixed(words_[0]) + words_[1]) + words_[2]);
    for (std::size_t i = 0; i < kFunctions.size(); ++i) {
      const auto value =
          static_cast<std::uint32_t>((kFunctions[i].factor * hash + kFunctions[i].shift) >> 32);
      signature_.minima[i] = std::min(signature_.minima[i], value);
    }
    ++signature_.runs;
  }

  ScriptSignature signature_;
  std::array<std::uint64_t, kWordsOfARun> words_{};
  std::uint64_t last_ = 0;
  std::size_t seen_ = 0;
};

void sign_line(std::string_view line, Signer& signer) noexcept {
  for (std::size_t i = 0; i < line.size();) {
    if (!is_word_byte(line[i])) {
      ++i;
      continue;
    }
    // Letters and digits part here, so that x12 and x13 differ in their number alone.
    const bool digits = is_digit(line[i]);
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    while (i < line.size() && is_word_byte(line[i]) && is_digit(line[i]) == digits) {
      hash = (hash ^ static_cast<unsigned char>(to_lower(line[i]))) * 0x100000001b3;
      ++i;
    }
    signer.word(digits ? kNumberWord : hash);
  }
}

bool is_directive(std::string_view line) noexcept {
  return line.starts_with("#SBATCH") || line.starts_with("#PBS") || line.starts_with("#BSUB") ||
         line.starts_with("#$") || line.starts_with("#OAR");
}

}  // namespace

ScriptSignature script_signature(std::string_view script) {
  script = script.substr(0, kMostBytes);
  Signer signer;
  while (!script.empty()) {
    const std::string_view line = take_until(script, '\n');
    if (!is_directive(line)) sign_line(line, signer);
  }
  return signer.end();
}

double similarity(const ScriptSignature& a, const ScriptSignature& b) noexcept {
  if (a.runs == 0 || b.runs == 0) return a.runs == b.runs ? 1 : 0;
  std::size_t equal = 0;
  for (std::size_t i = 0; i < a.minima.size(); ++i) equal += a.minima[i] == b.minima[i] ? 1 : 0;
  return static_cast<double>(equal) / static_cast<double>(a.minima.size());
}

std::string signature_bytes(const ScriptSignature& signature) {
  std::string bytes;
  bytes.reserve((signature.minima.size() + 1) * kBytesOfNumber);
  const auto add = [&](std::uint32_t number) {
    for (std::size_t i = 0; i < kBytesOfNumber; ++i)
      bytes += static_cast<char>((number >> (8 * i)) & 0xffU);
  };
  for (const std::uint32_t minimum : signature.minima) add(minimum);
  add(signature.runs);
  return bytes;
}

ScriptSignature signature_of_bytes(std::string_view bytes) {
  ScriptSignature signature;
  if (bytes.size() != (signature.minima.size() + 1) * kBytesOfNumber) return signature;
  const auto number = [&](std::size_t index) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < kBytesOfNumber; ++i) {
      const auto byte = static_cast<unsigned char>(bytes[index * kBytesOfNumber + i]);
      value |= static_cast<std::uint32_t>(byte) << (8 * i);
    }
    return value;
  };
  for (std::size_t i = 0; i < signature.minima.size(); ++i) signature.minima[i] = number(i);
  signature.runs = number(signature.minima.size());
  return signature;
}

std::string stable_name(std::string_view name) {
  std::string stable;
  for (const char c : name) {
    if (!is_digit(c)) {
      stable += to_lower(c);
    } else if (stable.empty() || stable.back() != '#') {
      stable += '#';
    }
  }
  return stable;
}

bool same_family(bool one_name, double similarity) noexcept {
  return similarity >= (one_name ? kSimilarUnderOneName : kSimilarWhenRenamed);
}

}  // namespace scriptorium

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace scriptorium::journal {

// The capture keys that marks have, per source. About 110 bytes a mark: names and keys are kept as
// 128-bit hashes. Changes can be undone back to the last commit(). Not thread-safe.
class MarkIndex {
 public:
  void put(std::string_view source, std::string_view entry, std::string_view capture_key) {
    change(key(source, entry), key(source, capture_key));
  }
  void forget(std::string_view source, std::string_view entry) {
    change(key(source, entry), std::nullopt);
  }
  bool has(std::string_view source, std::string_view capture_key) const {
    return keys_.contains(key(source, capture_key));
  }

  void commit() { undo_.clear(); }
  void rollback() {
    while (!undo_.empty()) {
      const Undo last = undo_.back();
      set(last.entry, last.captured);
      undo_.pop_back();
    }
  }

 private:
  struct Key {
    std::uint64_t high = 0, low = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept { return key.low; }
  };
  struct Undo {
    Key entry;
    std::optional<Key> captured;
  };

  // FNV-1a with 128 bits over source, NUL, text.
  static Key key(std::string_view source, std::string_view text) noexcept {
    __extension__ using Wide = unsigned __int128;
    constexpr Wide kPrime = (Wide{1} << 88) + 0x13b;
    Wide hash = (Wide{0x6c62272e07bb0142ULL} << 64) + 0x62b821756295c58dULL;
    for (const char c : source) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
    hash *= kPrime;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
    return {static_cast<std::uint64_t>(hash >> 64), static_cast<std::uint64_t>(hash)};
  }

  void change(const Key& entry, const std::optional<Key>& captured) {
    const auto it = entries_.find(entry);
    undo_.push_back({entry, it == entries_.end() ? std::nullopt : std::optional<Key>(it->second)});
    set(entry, captured);
  }
  void set(const Key& entry, const std::optional<Key>& captured) {
    if (const auto it = entries_.find(entry); it != entries_.end()) {
      if (const auto count = keys_.find(it->second); count != keys_.end() && --count->second == 0)
        keys_.erase(count);
      entries_.erase(it);
    }
    if (captured) {
      entries_.emplace(entry, *captured);
      ++keys_[*captured];
    }
  }

  std::unordered_map<Key, Key, Hash> entries_;
  std::unordered_map<Key, std::uint32_t, Hash> keys_;
  std::vector<Undo> undo_;
};

}  // namespace scriptorium::journal

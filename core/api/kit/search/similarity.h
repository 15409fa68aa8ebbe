#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace scriptorium {

// A short description of a script's text such that nearly equal scripts have nearly equal
// signatures: the minimum of each of 32 hash functions over all runs of three words (MinHash,
// Broder 1997). Numbers in words do not count, so that run_0041.in and run_0042.in are equal, nor
// do the directives of a scheduler.
struct ScriptSignature {
  std::array<std::uint32_t, 32> minima{};
  std::uint32_t runs = 0;  // how many were hashed; 0: an empty script
  bool operator==(const ScriptSignature&) const = default;
};
ScriptSignature script_signature(std::string_view script);

// The estimated share of common runs, 0 to 1.
double similarity(const ScriptSignature& a, const ScriptSignature& b) noexcept;

// 32 * 4 + 4 bytes, little-endian; of any other size: an empty signature.
std::string signature_bytes(const ScriptSignature& signature);
ScriptSignature signature_of_bytes(std::string_view bytes);

// A job's name without its changing numbers: "run_#" for run_0041, "md-#.#" for md-12.3. Lower
// case.
std::string stable_name(std::string_view name);

// Whether jobs of one owner are of one family, by the similarity of their scripts. Under one name a
// user edits a script; two scripts of one name have little more than a header in common. Under
// another name nothing but the name may have changed, since what a site's template makes of two
// programs is alike, too.
bool same_family(bool one_name, double similarity) noexcept;

}  // namespace scriptorium

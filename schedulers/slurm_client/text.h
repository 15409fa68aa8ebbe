#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"

// What Slurm's commands print, as values. Pure.
//
// Fields that users write (names, directories) may hold any byte, newlines included, so rows are
// taken apart by a guard of random digits that nobody could know, and one odd row refuses the whole
// answer.
namespace scriptorium::slurm_client {

// SQUEUE_FORMAT2 for these fields, each ended by `end`, which must not begin with a digit.
std::string squeue_format(std::span<const std::string_view> fields, std::string_view end);

// That an answer is refused: kTransient, in constant words, as it is logged and status counts
// failures by their message.
Error odd_answer(std::string_view command);

// Fields that end with `end` each, taken from the front of `text`; nothing if it has fewer, or if
// `end` is empty.
template <std::size_t kFields>
std::optional<std::array<std::string_view, kFields>> take_fields(std::string_view& text,
                                                                 std::string_view end) noexcept {
  if (end.empty()) return std::nullopt;
  std::array<std::string_view, kFields> fields;
  for (std::string_view& field : fields) {
    const std::size_t at = text.find(end);
    if (at == std::string_view::npos) return std::nullopt;
    field = text.substr(0, at);
    text.remove_prefix(at + end.size());
  }
  return fields;
}

// Rows of fields that end with `guard` each, the last one too; a newline ends the row. odd_answer()
// if anything is left over.
template <std::size_t kFields>
Result<std::vector<std::array<std::string_view, kFields>>> split_rows(std::string_view answer,
                                                                      std::string_view guard,
                                                                      std::string_view command) {
  std::vector<std::array<std::string_view, kFields>> rows;
  while (!answer.empty()) {
    const auto row = take_fields<kFields>(answer, guard);
    if (!row || !answer.starts_with('\n')) return odd_answer(command);
    answer.remove_prefix(1);
    rows.push_back(*row);
  }
  return rows;
}

// Text that Slurm leaves empty or prints as "(null)" is absent.
std::optional<std::string> optional_text(std::string_view text);
// Seconds since 1970; nothing for 0, and for anything else.
std::optional<Timestamp> read_epoch(std::string_view text) noexcept;
// "5:00", "1-02:00:00", "00:02.992"; nothing for words such as UNLIMITED.
std::optional<double> read_duration(std::string_view text) noexcept;
// "200M", "1.50G", "76853248"; nothing for anything else.
std::optional<std::uint64_t> read_size(std::string_view text) noexcept;
// A number of things; nothing for Slurm's "not set" and "infinite" of 32 bits (NO_VAL, INFINITE in
// slurm/slurm.h).
std::optional<std::uint32_t> read_count(std::string_view text) noexcept;
// The value of a member of "cpu=2,mem=200M,node=1,gres/gpu=2".
std::optional<std::string_view> tres(std::string_view list, std::string_view name) noexcept;
// The names in "n[01-03,7],login1"; none if it is not as Slurm writes it.
std::vector<std::string> read_hosts(std::string_view list);

}  // namespace scriptorium::slurm_client

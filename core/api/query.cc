#include "core/api/query.h"

#include <array>

namespace scriptorium {
namespace {

struct FieldWord {
  std::string_view word;
  bool range = false;
  bool outcome = false;
};
// In the order of QueryField.
constexpr std::array<FieldWord, kQueryFieldCount> kWords{{
    {"job"},
    {"user"},
    {"account"},
    {"partition"},
    {"qos"},
    {"name"},
    {"cluster"},
    {"scheduler"},
    {"module"},
    {"directive"},
    {"interpreter"},
    {"state", false, true},
    {"exit", true, true},
    {"elapsed", true, true},
    {"mem", true, true},
    {"cpu", true, true},
    {"gpu", true, true},
    {"node", false, true},
    {"submitted", true},
    {"ended", true, true},
    {"workdir"},
    {"finding"},
    {"family"},
    {"array"},
    {"complete"},
    {"verified"},
    {"script"},
    {"started", true, true},
    {"secret"},
    {"req.mem", true, true},
    {"req.cpu", true, true},
    {"req.gpu", true, true},
    {"req.time", true, true},
    {"software"},
}};

}  // namespace

std::string_view query_field_name(QueryField field) noexcept {
  return kWords[static_cast<std::size_t>(field)].word;
}

std::optional<QueryField> query_field_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    if (kWords[i].word == name) return static_cast<QueryField>(i);
  }
  return std::nullopt;
}

std::vector<std::string> query_field_names() {
  std::vector<std::string> names;
  for (const FieldWord& word : kWords) names.emplace_back(word.word);
  return names;
}

bool is_range_field(QueryField field) noexcept {
  return kWords[static_cast<std::size_t>(field)].range;
}

bool is_outcome_field(QueryField field) noexcept {
  return kWords[static_cast<std::size_t>(field)].outcome;
}

}  // namespace scriptorium

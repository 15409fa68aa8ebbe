#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

// What a job's usage events say, in words and tables for people, on a terminal or a page. The
// events are unchecked: other versions or programs may have written them. Times are those of the
// process's time zone. Pure.
namespace scriptorium::query {

inline constexpr const char* kUsage = "usage";  // the events' member, not a plugin's name

std::string percent(const std::optional<double>& ratio);  // "97 %", "1.2 %"; "-" if it is unknown
std::string bytes_text(double value);
std::string count_text(double value);  // "3", "2.50"

// "alice, account chem, partition batch".
std::string owner_text(const nlohmann::ordered_json& usage_job);

// A time in RFC 3339 for people: "2026-11-21 09:00:00 CET".
std::string time_text(const std::string& time);
// A column of such times, in the reader's zone, which its title names. Where the clock was
// changed between them, each cell names it instead.
struct TimeColumn {
  std::string title;
  std::vector<std::string> cells;
};
TimeColumn time_column(const std::string& title, const std::vector<std::string>& times);

// Of one run.
struct UsageEvents {
  nlohmann::ordered_json const* event =
      nullptr;  // usage.job; null if there are only events of nodes
  std::vector<nlohmann::ordered_json const*> nodes;  // usage.node
};
// The usage of a node, from its event or from its part of usage.job.
const nlohmann::ordered_json& block_of(const nlohmann::ordered_json& node);

struct UsageTable {
  std::vector<std::string> head;
  std::vector<std::size_t> numbers;            // columns that are aligned to the right
  std::vector<std::vector<std::string>> rows;  // none: nothing is known
};
UsageTable program_table(const UsageEvents& run);  // those that used most CPU time
UsageTable step_table(const UsageEvents& run);

}  // namespace scriptorium::query

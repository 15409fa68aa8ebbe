#include "schedulers/usage/counters.h"

#include <algorithm>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::usage {
namespace {

// Takes the first line off `text`, without its end.
std::string_view take_line(std::string_view& text) noexcept { return take_until(text, '\n'); }

// Takes the first word off `text`.
std::string_view take_word(std::string_view& text) noexcept {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

// Calls `use(first, last)` for each part of a list such as "0-3,8", until it returns false. False
// if it did, or if a part is not a number or an ascending range.
template <typename Use>
bool each_range(std::string_view list, Use use) {
  list = trim_end(list, " \n");
  while (!list.empty()) {
    std::string_view part = take_until(list, ',');
    const auto first = take_number<std::uint32_t>(part);
    const auto last = part.starts_with('-') ? parse_number<std::uint32_t>(part.substr(1)) : first;
    if (!first || !last || *last < *first || (!part.empty() && part[0] != '-') ||
        !use(*first, *last))
      return false;
  }
  return true;
}

// Calls `use(key, value)` for each line "KEY VALUE", until it returns false.
template <typename Use>
void each_pair(std::string_view text, Use use) noexcept {
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos && !use(line.substr(0, space), line.substr(space + 1)))
      return;
  }
}

std::optional<double> seconds(std::optional<std::uint64_t> count, double unit) noexcept {
  if (!count) return std::nullopt;
  return static_cast<double>(*count) * unit;
}

std::optional<std::uint64_t> minus(std::optional<std::uint64_t> all,
                                   std::optional<std::uint64_t> part) noexcept {
  if (!all) return std::nullopt;
  return *all > part.value_or(0) ? *all - part.value_or(0) : 0;
}

void add(std::optional<std::uint64_t>& sum, std::uint64_t more) noexcept {
  sum = sum.value_or(0) + more;
}

// v1 says "no limit" by the largest multiple of a page.
constexpr std::uint64_t kNoLimit = 0x7fff'ffff'ffff'0000;

}  // namespace

std::optional<std::uint64_t> whole_number(std::string_view text) noexcept {
  return parse_number<std::uint64_t>(trim_end(text, " \n"));
}

std::optional<std::uint64_t> value_of(std::string_view text, std::string_view key) noexcept {
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.size() > key.size() && line[key.size()] == ' ' && line.starts_with(key)) {
      return whole_number(line.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

MemoryStat parse_memory_stat_v1(std::string_view text) noexcept {
  MemoryStat stat;
  std::optional<std::uint64_t> cache;
  each_pair(text, [&](std::string_view key, std::string_view value) {
    if (key == "total_rss") stat.anon_bytes = parse_number<std::uint64_t>(value);
    if (key == "total_cache") cache = parse_number<std::uint64_t>(value);
    if (key == "total_shmem") stat.shmem_bytes = parse_number<std::uint64_t>(value);
    if (key == "total_swap") stat.swap_bytes = parse_number<std::uint64_t>(value);
    if (key == "hierarchical_memory_limit") stat.limit_bytes = parse_number<std::uint64_t>(value);
    return true;
  });
  stat.file_bytes = minus(cache, stat.shmem_bytes);
  if (stat.limit_bytes && *stat.limit_bytes >= kNoLimit) stat.limit_bytes.reset();
  return stat;
}

MemoryStat parse_memory_stat_v2(std::string_view text) noexcept {
  MemoryStat stat;
  std::optional<std::uint64_t> file;
  each_pair(text, [&](std::string_view key, std::string_view value) {
    if (key == "anon") stat.anon_bytes = parse_number<std::uint64_t>(value);
    if (key == "file") file = parse_number<std::uint64_t>(value);
    if (key == "shmem") stat.shmem_bytes = parse_number<std::uint64_t>(value);
    return !(stat.anon_bytes && file &&
             stat.shmem_bytes);  // they are among the first of some fifty
  });
  stat.file_bytes = minus(file, stat.shmem_bytes);
  return stat;
}

CpuStat parse_cpu_stat_v2(std::string_view text) noexcept {
  constexpr double kMicro = 1e-6;
  return {.time_seconds = seconds(value_of(text, "usage_usec"), kMicro),
          .user_seconds = seconds(value_of(text, "user_usec"), kMicro),
          .system_seconds = seconds(value_of(text, "system_usec"), kMicro),
          .throttled_seconds = seconds(value_of(text, "throttled_usec"), kMicro)};
}

CpuStat cpu_time_v1(std::string_view usage, std::string_view stat) noexcept {
  CpuStat result;
  result.time_seconds = seconds(whole_number(usage), 1e-9);
  const auto user = value_of(stat, "user");
  const auto system = value_of(stat, "system");
  if (result.time_seconds && user && system && *user + *system > 0) {
    const double share = static_cast<double>(*user) / static_cast<double>(*user + *system);
    result.user_seconds = *result.time_seconds * share;
    result.system_seconds = *result.time_seconds - *result.user_seconds;
  }
  return result;
}

std::optional<double> pressure_seconds(std::string_view text, std::string_view which) noexcept {
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (!line.starts_with(which)) continue;
    const std::size_t at = line.find(" total=");
    if (at == std::string_view::npos) return std::nullopt;
    return seconds(whole_number(line.substr(at + 7)), 1e-6);
  }
  return std::nullopt;
}

IoBytes parse_io_stat_v2(std::string_view text) noexcept {
  IoBytes bytes{0, 0};
  while (!text.empty()) {
    std::string_view line = take_line(text);
    while (!line.empty()) {
      const std::string_view word = take_word(line);
      if (word.starts_with("rbytes="))
        add(bytes.read_bytes, parse_number<std::uint64_t>(word.substr(7)).value_or(0));
      if (word.starts_with("wbytes="))
        add(bytes.written_bytes, parse_number<std::uint64_t>(word.substr(7)).value_or(0));
    }
  }
  return bytes;
}

IoBytes parse_blkio(std::string_view text) noexcept {
  IoBytes bytes;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    take_word(line);  // "8:0"
    const std::string_view what = take_word(line);
    const auto count = parse_number<std::uint64_t>(take_word(line));
    if (!count) continue;
    if (what == "Read") add(bytes.read_bytes, *count);
    if (what == "Write") add(bytes.written_bytes, *count);
  }
  if (bytes.read_bytes.value_or(0) == 0 && bytes.written_bytes.value_or(0) == 0) return {};
  return bytes;
}

std::optional<std::uint32_t> count_cpus(std::string_view list) noexcept {
  std::uint32_t count = 0;
  const bool whole = each_range(list, [&](std::uint32_t first, std::uint32_t last) {
    count += last - first + 1;
    return last - first <= 1'000'000;
  });
  return whole && count > 0 ? std::optional(count) : std::nullopt;
}

std::vector<std::uint32_t> parse_pids(std::string_view text) {
  std::vector<std::uint32_t> pids;
  while (!text.empty()) {
    if (const auto pid = parse_number<std::uint32_t>(take_line(text)); pid && *pid > 0)
      pids.push_back(*pid);
  }
  return pids;
}

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  // The command is in parentheses and may hold any byte but NUL, so the last ')' ends it.
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  ProcessStat stat;
  stat.command = text.substr(open + 1, close - open - 1);
  std::string_view rest = text.substr(close + 1);
  std::uint64_t fields[23] = {};  // numbered as proc(5) does
  for (std::size_t i = 3; i <= 22; ++i) {
    const std::string_view word = take_word(rest);
    if (word.empty()) return std::nullopt;
    if (i == 3) stat.state = word.front();
    if (i < 14 || i == 18 || i == 19 || i == 21) continue;
    const auto value = parse_number<std::uint64_t>(word);
    if (!value) return std::nullopt;
    fields[i] = *value;
  }
  stat.ticks = fields[14] + fields[15];
  stat.children_ticks = fields[16] + fields[17];
  stat.user_ticks = fields[14] + fields[16];
  stat.threads = fields[20];
  stat.start_ticks = fields[22];
  return stat;
}

std::optional<std::uint64_t> parse_statm(std::string_view text) noexcept {
  take_word(text);
  const auto resident = parse_number<std::uint64_t>(take_word(text));
  const auto shared = parse_number<std::uint64_t>(take_word(text));
  if (!resident || !shared || *shared > *resident) return std::nullopt;
  return *resident - *shared;
}

IoBytes parse_process_io(std::string_view text) noexcept {
  return {value_of(text, "rchar:"), value_of(text, "wchar:")};
}

std::optional<std::string_view> variable(std::string_view environment,
                                         std::string_view name) noexcept {
  while (!environment.empty()) {
    const std::string_view string = take_until(environment, '\0');
    if (string.size() > name.size() && string[name.size()] == '=' && string.starts_with(name)) {
      return string.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

std::optional<std::vector<std::uint32_t>> allowed_minors(std::string_view devices_list,
                                                         std::uint32_t major) {
  std::vector<std::uint32_t> minors;
  while (!devices_list.empty()) {
    std::string_view line = take_line(devices_list);
    const std::string_view type = take_word(line);
    if (type == "a") return std::nullopt;
    if (type != "c") continue;
    const std::string_view device = take_word(line);
    const std::size_t colon = device.find(':');
    if (colon == std::string_view::npos) continue;
    if (device.substr(0, colon) == "*") return std::nullopt;
    if (parse_number<std::uint32_t>(device.substr(0, colon)) != major) continue;
    if (device.substr(colon + 1) == "*") return std::nullopt;
    if (const auto minor = parse_number<std::uint32_t>(device.substr(colon + 1)))
      minors.push_back(*minor);
  }
  return minors;
}

std::optional<std::vector<std::uint32_t>> parse_index_list(std::string_view list) {
  constexpr std::size_t kMost = 1024;
  std::vector<std::uint32_t> indexes;
  const bool whole = each_range(list, [&](std::uint32_t first, std::uint32_t last) {
    if (last - first >= kMost || indexes.size() >= kMost) return false;
    for (std::uint32_t i = first; i <= last; ++i) indexes.push_back(i);
    return true;
  });
  return whole ? std::optional(std::move(indexes)) : std::nullopt;
}

}  // namespace scriptorium::usage

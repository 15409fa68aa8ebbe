#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What the kernel's counter files say. Pure functions on a file's text: a field that is missing or
// is not a number is absent.
namespace scriptorium::usage {

// "123\n". Nothing for "max" and for anything else that is not a number.
std::optional<std::uint64_t> whole_number(std::string_view text) noexcept;
// The number of the line "KEY NUMBER", as in memory.events.
std::optional<std::uint64_t> value_of(std::string_view text, std::string_view key) noexcept;

struct MemoryStat {
  std::optional<std::uint64_t> anon_bytes, shmem_bytes, swap_bytes;
  std::optional<std::uint64_t> file_bytes;   // page cache without shmem
  std::optional<std::uint64_t> limit_bytes;  // v1 only; absent where there is none
};
MemoryStat parse_memory_stat_v1(
    std::string_view text) noexcept;  // its total_* lines: the group and all below it
MemoryStat parse_memory_stat_v2(std::string_view text) noexcept;  // swap is not in it

struct CpuStat {
  std::optional<double> time_seconds, user_seconds, system_seconds, throttled_seconds;
};
CpuStat parse_cpu_stat_v2(std::string_view text) noexcept;
// The exact time of cpuacct.usage, split as the ticks of cpuacct.stat are; no split where there is
// no tick yet.
CpuStat cpu_time_v1(std::string_view usage, std::string_view stat) noexcept;

// "some" or "full" of a pressure file.
std::optional<double> pressure_seconds(std::string_view text, std::string_view which) noexcept;

struct IoBytes {
  std::optional<std::uint64_t> read_bytes, written_bytes;
};
IoBytes parse_io_stat_v2(std::string_view text) noexcept;  // of all devices; no line: 0
// blkio.throttle.io_service_bytes_recursive. All zero counts as absent: newer kernels keep no count
// there until somebody sets a limit.
IoBytes parse_blkio(std::string_view text) noexcept;

// How many CPUs "0-3,8" names. Nothing for an empty or odd list.
std::optional<std::uint32_t> count_cpus(std::string_view list) noexcept;

// The numbers of cgroup.procs.
std::vector<std::uint32_t> parse_pids(std::string_view text);

struct ProcessStat {
  std::string command;
  char state = '?';                  // 'R', 'S', 'D', ...
  std::uint64_t ticks = 0;           // user and system, its own
  std::uint64_t children_ticks = 0;  // of children that ended and were waited for
  std::uint64_t user_ticks = 0;      // user alone, children's included
  std::uint64_t threads = 0;
  std::uint64_t start_ticks = 0;  // since boot
};
std::optional<ProcessStat> parse_process_stat(std::string_view text);  // /proc/PID/stat

// Resident pages that no other process shares: /proc/PID/statm.
std::optional<std::uint64_t> parse_statm(std::string_view text) noexcept;

IoBytes parse_process_io(std::string_view text) noexcept;  // rchar, wchar of /proc/PID/io

// The value of a variable in NUL-ended NAME=value strings; the first one counts.
std::optional<std::string_view> variable(std::string_view environment,
                                         std::string_view name) noexcept;

// Minor numbers of the character devices of one major that a v1 device group allows: "c 195:0 rw".
// Nothing where it allows all devices, or all of that major.
std::optional<std::vector<std::uint32_t>> allowed_minors(std::string_view devices_list,
                                                         std::uint32_t major);

// "0,2-3" as 0 2 3; nothing for an odd list or one of more than 1024.
std::optional<std::vector<std::uint32_t>> parse_index_list(std::string_view list);

}  // namespace scriptorium::usage

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/api/query.h"

// Which software how many jobs and users load. Pure.
namespace scriptorium::cli {

enum class SoftwareBy { kNothing, kUser, kAccount };

struct SoftwareUse {
  std::string kind;  // "module", "conda", "apptainer", ..., "interpreter"
  std::string name;  // "GROMACS/2023.1", "/usr/bin/python3"
  std::string by;    // the user or account; "" unless asked for
  std::uint64_t jobs = 0;
  std::uint64_t users = 0;
  std::uint64_t measured_jobs = 0;  // whose CPU time is known
  double cpu_hours = 0;             // of those
  std::optional<Timestamp> last;    // submitted
};

// Jobs are added one by one; memory grows with the different pieces of software, not with the jobs.
class SoftwareTable {
 public:
  explicit SoftwareTable(SoftwareBy by) : by_(by) {}
  void add(const JobRow& job);
  // The most used first: by jobs, then by name.
  std::vector<SoftwareUse> rows() const;
  std::uint64_t jobs() const noexcept { return jobs_; }
  std::uint64_t measured_jobs() const noexcept { return measured_; }

 private:
  struct Key {
    std::string kind;
    std::string name;
    std::string by;
    auto operator<=>(const Key&) const = default;
  };
  struct Sum {
    SoftwareUse use;
    std::set<std::string> users;
  };
  void count(Key key, const JobRow& job);

  SoftwareBy by_;
  std::map<Key, Sum> sums_;
  std::uint64_t jobs_ = 0;
  std::uint64_t measured_ = 0;
};

}  // namespace scriptorium::cli

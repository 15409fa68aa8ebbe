#include "core/import/tree_path.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/number.h"

namespace scriptorium::import {
namespace {

using Role = TreePath::Role;

constexpr std::size_t kMaxJobId = 64;
constexpr std::size_t kMaxUser = 256;

// "4711", "4711_3", "4711[]", "4711.server.example"
bool is_job_id(std::string_view text) noexcept {
  const auto fits = [](char c) {
    return is_alphanumeric(c) || std::string_view("._-[]+").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kMaxJobId && is_digit(text.front()) &&
         std::all_of(text.begin(), text.end(), fits);
}

int number(std::string_view digits) noexcept { return parse_number<int>(digits).value_or(0); }

struct Split {
  std::string_view folder;  // without a final '/'; "" = the tree itself
  std::string_view name;
};
Split split(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {{}, path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

// Removes `suffix` from the end; false if it is missing or nothing would be left.
bool drop_suffix(std::string_view& text, std::string_view suffix) noexcept {
  if (!text.ends_with(suffix) || text.size() == suffix.size()) return false;
  text.remove_suffix(suffix.size());
  return true;
}

TreePath sarchive(std::string_view path) {
  constexpr std::string_view kJob = "job.";
  TreePath found;
  std::string_view stem = path;
  Role role = Role::kForeign;
  if (drop_suffix(stem, "_script")) {
    role = Role::kScript;
  } else if (drop_suffix(stem, "_environment")) {
    role = Role::kEnvironment;
  } else {
    return found;
  }
  const std::string_view job = split(stem).name;
  if (!job.starts_with(kJob) || !is_job_id(job.substr(kJob.size()))) return found;
  found.role = role;
  found.entry = std::string(stem);
  found.job_id = std::string(job.substr(kJob.size()));
  found.period = period_of_folder(path);
  return found;
}

TreePath job_archive(std::string_view path) {
  TreePath found;
  std::string_view stem = path;
  Role role = Role::kForeign;
  if (drop_suffix(stem, ".sh")) {
    role = Role::kScript;
  } else if (drop_suffix(stem, ".env")) {
    role = Role::kEnvironment;
  } else {
    return found;
  }
  const auto [month_folder, name] = split(stem);
  const auto [year_folder, month] = split(month_folder);
  const auto [user_folder, year] = split(year_folder);
  const std::string_view user = split(user_folder).name;
  const std::string_view id = name.substr(0, name.find('-'));
  if (!is_job_id(id) || !is_all_digits(id) || year.size() != 4 || month.size() != 2 ||
      user.empty() || user.size() > kMaxUser)
    return found;
  found.period = period_of(std::string(year) + std::string(month));
  if (!found.period) return found;
  found.role = role;
  found.entry = std::string(stem);
  found.job_id = std::string(id);
  if (name.size() > id.size() + 1) found.job_name = std::string(name.substr(id.size() + 1));
  found.user = std::string(user);
  return found;
}

TreePath savescript(std::string_view path) {
  TreePath found;
  std::string_view stem = path;
  if (!drop_suffix(stem, ".savescript")) return found;
  const std::string_view id = split(stem).name;
  if (!is_job_id(id)) return found;
  found.role = Role::kScript;
  found.entry = std::string(stem);
  found.job_id = std::string(id);
  found.period = period_of_folder(path);
  return found;
}

constexpr std::array<std::pair<const char*, TreeFormat>, 3> kFormats{{
    {"sarchive", TreeFormat::kSarchive},
    {"job_archive", TreeFormat::kJobArchive},
    {"savescript", TreeFormat::kSavescript},
}};

}  // namespace

std::optional<TreeFormat> parse_tree_format(std::string_view name) noexcept {
  for (const auto& [text, format] : kFormats) {
    if (name == text) return format;
  }
  return std::nullopt;
}

const char* to_string(TreeFormat format) noexcept {
  for (const auto& [text, candidate] : kFormats) {
    if (candidate == format) return text;
  }
  return "?";
}

std::optional<Period> period_of(std::string_view digits) noexcept {
  using namespace std::chrono;
  if (!is_all_digits(digits) || (digits.size() != 4 && digits.size() != 6 && digits.size() != 8))
    return std::nullopt;
  const year y{number(digits.substr(0, 4))};
  // Batch schedulers of this kind are not older than Unix; other digits may be a job id.
  if (y < year{1980} || y > year{2200}) return std::nullopt;
  const month m{digits.size() >= 6 ? static_cast<unsigned>(number(digits.substr(4, 2))) : 1U};
  const day d{digits.size() == 8 ? static_cast<unsigned>(number(digits.substr(6, 2))) : 1U};
  if (!m.ok() || !year_month_day{y, m, d}.ok()) return std::nullopt;
  const sys_days begin{y / m / d};
  const sys_days end = digits.size() == 4   ? sys_days{(y + years{1}) / January / 1}
                       : digits.size() == 6 ? sys_days{(y / m + months{1}) / 1}
                                            : begin + days{1};
  return Period{.begin = nanoseconds(begin.time_since_epoch()).count(),
                .end = nanoseconds(end.time_since_epoch()).count()};
}

std::optional<Period> period_of_folder(std::string_view path) noexcept {
  for (std::string_view folder = split(path).folder; !folder.empty();
       folder = split(folder).folder) {
    if (const auto period = period_of(split(folder).name)) return period;
  }
  return std::nullopt;
}

TreePath classify(TreeFormat format, std::string_view path) {
  switch (format) {
    case TreeFormat::kSarchive: return sarchive(path);
    case TreeFormat::kJobArchive: return job_archive(path);
    case TreeFormat::kSavescript: return savescript(path);
  }
  return {};
}

}  // namespace scriptorium::import

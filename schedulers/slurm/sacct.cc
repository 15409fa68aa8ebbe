#include "schedulers/slurm/sacct.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "schedulers/slurm_client/text.h"

namespace scriptorium::slurm {
namespace {

constexpr auto kFormat = "JobIDRaw,JobID,UID,GID,Submit,Cluster";

bool is_cluster(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || c == '_' || c == '-' || c == '.';
  });
}

// The number under which the script lay: of "3_1" and "4_[0-4%2]" that of the array, else the job's
// own, also of "5+1". Nothing if `id` is not one that Slurm writes.
std::optional<std::uint64_t> read_entry_id(std::string_view id, std::uint64_t raw) noexcept {
  const std::size_t mark = id.find_first_of("_+");
  const auto first = parse_number<std::uint64_t>(id.substr(0, mark));
  if (!first) return std::nullopt;
  if (mark == std::string_view::npos) return *first == raw ? first : std::nullopt;
  std::string_view rest = id.substr(mark + 1);
  if (id[mark] == '+') return parse_number<std::uint64_t>(rest) ? std::optional(raw) : std::nullopt;
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  const bool tasks =
      !rest.empty() && rest.find_first_not_of("0123456789,:%-.") == std::string_view::npos;
  return tasks ? first : std::nullopt;
}

// A uid or gid; the values that mean none are printed as nothing, or as they are.
bool read_owner(std::string_view text, std::optional<std::uint32_t>& into) noexcept {
  if (text.empty()) return true;
  const auto number = parse_number<std::uint64_t>(text);
  constexpr std::uint64_t kNoValue = 0xfffffffe;
  if (!number || *number > std::numeric_limits<std::uint32_t>::max()) return false;
  if (*number < kNoValue) into = static_cast<std::uint32_t>(*number);
  return true;
}

}  // namespace

std::vector<std::string> sacct_arguments(std::span<const std::uint64_t> ids) {
  std::string list;
  for (const std::uint64_t id : ids)
    list.append(list.empty() ? "" : ",").append(std::to_string(id));
  // Everybody's jobs, without their steps, all lives of each; of a federation only this cluster's.
  return {"-a",      "-X", "-D",    "-n", "--parsable2", "--noconvert",
          "--local", "-o", kFormat, "-j", list};
}

Result<std::vector<QueueRow>> parse_sacct(std::string_view answer,
                                          std::span<const std::uint64_t> ids) {
  const std::set<std::uint64_t> wanted(ids.begin(), ids.end());
  std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::int64_t>>
      known;  // an array may have a million tasks
  std::vector<QueueRow> rows;
  std::optional<std::string_view> only_cluster;
  while (!answer.empty()) {
    const auto fields = slurm_client::take_fields<5>(answer, "|");
    const auto last = slurm_client::take_fields<1>(answer, "\n");
    if (!fields || !last) return slurm_client::odd_answer("sacct");
    const auto& [raw, id, uid, gid, submit] = *fields;
    const std::string_view cluster = last->front();
    const auto number = parse_number<std::uint64_t>(raw);
    if (!number || !is_cluster(cluster)) return slurm_client::odd_answer("sacct");
    const auto entry = read_entry_id(id, *number);
    std::optional<std::uint32_t> user;
    std::optional<std::uint32_t> group;
    const auto submitted = parse_number<std::uint64_t>(submit);
    if (!entry || !read_owner(uid, user) || !read_owner(gid, group) ||
        (!submitted && submit != "Unknown" && submit != "None") ||
        submitted.value_or(0) >
            static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return slurm_client::odd_answer("sacct");
    }
    // Two clusters number their jobs alike.
    if (only_cluster.value_or(cluster) != cluster)
      return Error(ErrorKind::kTransient,
                   "sacct: it answers for more than one cluster; the whole answer is refused");
    only_cluster = cluster;
    if (!user || !group || !submitted) continue;
    const auto since = static_cast<std::int64_t>(*submitted);
    if (!wanted.contains(*entry) || !known.emplace(*entry, *user, *group, since).second) continue;
    rows.push_back({.job_id = *number,
                    .array_job_id = *entry,
                    .uid = *user,
                    .gid = *group,
                    .submitted = since});
  }
  return rows;
}

OwnerAnswer accounted_owner(const std::vector<QueueRow>& rows, const EntryIdentity& entry) {
  std::vector<const QueueRow*> fit;
  for (const QueueRow& row : rows) {
    if (row.array_job_id == entry.job_id && belongs(row, entry)) fit.push_back(&row);
  }
  OwnerAnswer answer = make_answer(fit, entry);
  if (answer.state != OwnerAnswer::State::kFound) answer = {.state = OwnerAnswer::State::kUnknown};
  return answer;
}

}  // namespace scriptorium::slurm

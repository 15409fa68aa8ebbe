#include "core/import/owners.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium::import {
namespace {

constexpr std::int64_t kMinute = 60'000'000'000;
constexpr std::int64_t kBefore =
    60 * kMinute;  // an archiver is usually seconds late, but more when it has to catch up
constexpr std::int64_t kAfter = 5 * kMinute;
constexpr std::uint64_t kLargestList = std::uint64_t{4} << 30;

enum Column : std::size_t {
  kId,
  kUser,
  kSubmit,
  kUid,
  kGroup,
  kGid,
  kAccount,
  kPartition,
  kQos,
  kColumns
};
constexpr std::array<std::string_view, kColumns> kNames{
    "JobIDRaw", "User", "Submit", "UID", "Group", "GID", "Account", "Partition", "QOS"};

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t bar = line.find('|');
    fields.push_back(line.substr(0, bar));
    if (bar == std::string_view::npos) return fields;
    line.remove_prefix(bar + 1);
  }
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_number(std::string_view text) noexcept { return text.size() <= 10 && is_all_digits(text); }
bool is_user_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 256 && is_utf8(text) &&
         std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) <= ' ' || c == '/' || c == ':';
         });
}

std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<std::string>(text);
}

}  // namespace

Result<OwnerList> OwnerList::parse(std::string_view text, const std::string& name) {
  std::array<std::optional<std::size_t>, kColumns> at;
  const std::vector<std::string_view> head = fields_of(next_line(text));
  for (std::size_t i = 0; i < head.size(); ++i) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      if (head[i] == kNames[column] || (column == kId && head[i] == "JobID" && !at[kId]))
        at[column] = i;
    }
  }
  for (const Column needed : {kId, kUser, kSubmit}) {
    if (at[needed]) continue;
    return Error{ErrorKind::kInvalidConfig,
                 name + ":1: no column " + std::string(kNames[needed]) +
                     "; the first line must name the columns, separated by '|', including "
                     "JobIDRaw, User and Submit, as in: TZ=UTC "
                     "sacct -a -X -D -P -S 2020-01-01 -o "
                     "JobIDRaw,User,UID,Group,GID,Account,Partition,QOS,Submit"};
  }
  OwnerList list;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (line.empty()) continue;
    const std::vector<std::string_view> fields = fields_of(line);
    const auto field = [&](Column column) {
      return at[column] && *at[column] < fields.size() ? fields[*at[column]] : std::string_view{};
    };
    const auto submitted = parse_rfc3339(std::string(field(kSubmit)) + "Z");
    const std::string_view uid = field(kUid);
    if (fields.size() != head.size() || field(kId).empty() || !is_user_name(field(kUser)) ||
        !submitted || (!uid.empty() && !is_number(uid))) {
      ++list.odd_lines_;
      continue;
    }
    Record record;
    record.submitted_ns = submitted->nanoseconds;
    record.user = field(kUser);
    record.uid = uid;
    record.group = field(kGroup);
    if (is_number(field(kGid))) record.gid = field(kGid);
    record.account = field(kAccount);
    record.partition = field(kPartition);
    record.qos = field(kQos);
    list.records_[std::string(field(kId))].push_back(std::move(record));
    ++list.jobs_;
  }
  return list;
}

Result<OwnerList> OwnerList::read(const std::string& file, std::uint32_t trusted_uid) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return system_error("--owners: " + file, errno);
  const auto stat = stat_fd(fd.get());
  if (!stat) return stat.error();
  if (!stat->is_regular())
    return Error{ErrorKind::kInvalidConfig, "--owners: " + file + ": not a regular file"};
  if ((stat->owner != 0 && stat->owner != trusted_uid) || (stat->mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{
        ErrorKind::kInvalidConfig,
        "--owners: " + file +
            ": others could have written it, and it decides who may read which job; chown it to "
            "yourself and chmod go-w"};
  }
  auto text = read_fd(fd.get(), kLargestList, stat->size);
  if (!text) return text.error();
  return parse(*text, file);
}

bool OwnerList::verify(Event& event) const {
  const auto found = records_.find(event.job.id);
  if (found == records_.end()) return false;
  const Record* match = nullptr;
  for (const Record& record : found->second) {
    const std::int64_t late = event.time.nanoseconds - record.submitted_ns;
    if (late < -kAfter || late > kBefore) continue;
    if (match != nullptr && (match->user != record.user || match->uid != record.uid)) return false;
    match = &record;
  }
  if (match == nullptr) return false;
  event.user.name = match->user;
  event.user.id = unless_empty(match->uid);
  event.user.group_name = unless_empty(match->group);
  event.user.group_id = unless_empty(match->gid);
  event.user.verified = true;
  if (!match->account.empty()) event.job.account = match->account;
  if (!match->partition.empty()) event.job.partition = match->partition;
  if (!match->qos.empty()) event.job.qos = match->qos;
  event.job.submitted_at = Timestamp{match->submitted_ns};
  return true;
}

}  // namespace scriptorium::import

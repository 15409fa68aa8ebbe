#include "core/capture/spool_presence.h"

#include <algorithm>
#include <utility>

namespace scriptorium {
namespace {

constexpr std::chrono::milliseconds kFirstSearch{20};
constexpr std::chrono::milliseconds kLongestSearch{1000};

}  // namespace

bool looks_unused(const std::vector<SpoolName>& names) {
  return std::all_of(names.begin(), names.end(), [](const SpoolName& n) {
    return n.name.starts_with('.') || n.name == "lost+found";
  });
}

SpoolPresence::SpoolPresence(const CaptureContext& context, const EntryTable& table)
    : context_(context), table_(table) {
  if (const auto stat = context_.access.stat("")) adopt(*stat);
}

void SpoolPresence::adopt(const FileStat& stat) {
  root_ = {.inode = stat.inode,
           .device = stat.device,
           .mount = MountTable::mount_of(context_.access.root()),
           .owner = stat.owner};
}

SpoolPresence::State SpoolPresence::check() {
  const auto stat = context_.access.stat("");
  if (!stat || !is_root(*stat)) {
    reason_ = stat ? "another directory stands in its place" : stat.error().message();
    return State::kLost;
  }
  if (MountTable::mount_of(context_.access.root()) == root_.mount) return State::kSame;
  adopt(*stat);
  return State::kRemounted;
}

void SpoolPresence::lose(std::string reason, SteadyTime now) {
  there_ = false;
  reason_ = std::move(reason);
  next_search_ = now;
  search_delay_ = kFirstSearch;
}

bool SpoolPresence::search(SteadyTime now) {
  next_search_ = now + search_delay_;
  search_delay_ = std::min(search_delay_ * 2, kLongestSearch);
  const auto stat = context_.access.stat("");
  reason_ = stat ? why_not_a_spool() : "";
  if (!stat || !reason_.empty()) return false;
  there_ = true;
  adopt(*stat);
  return true;
}

bool SpoolPresence::is_bare_mount_point() const {
  const auto stat = context_.access.stat("");
  if (!stat) return false;
  const bool moved = root_.inode == 0 || stat->device != root_.device ||
                     MountTable::mount_of(context_.access.root()) != root_.mount ||
                     table_.any_on_other_device(stat->device);
  const bool nothing_to_lose = root_.inode != 0 && table_.entries().records() == 0 && there_;
  if (!moved || nothing_to_lose) return false;
  const auto names = context_.access.list("");
  return names && looks_unused(*names);
}

std::string SpoolPresence::why_not_a_spool() const {
  if (is_bare_mount_point()) return "an empty directory stands in its place";
  auto names = context_.access.list("");
  if (!names) return names.error().message();
  std::vector<std::string> list;
  for (SpoolName& name : *names) list.push_back(std::move(name.name));
  const auto fits = context_.adapter.check_root(list);
  return fits ? std::string{} : fits.error().message();
}

}  // namespace scriptorium

#include "backends/catalog/coordinators.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/file.h"
#include "core/base/time.h"

namespace scriptorium::catalog {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kMode = 0640;

std::string file_in(const std::string& root) { return root + "/coordinators.json"; }

}  // namespace

Result<std::vector<CoordinatorList>> read_coordinators(const std::string& root) {
  const auto text = read_file(file_in(root));
  if (!text && text.error().kind() == ErrorKind::kVanished) return std::vector<CoordinatorList>{};
  if (!text) return text.error();
  std::vector<CoordinatorList> lists;
  try {
    const Json all = Json::parse(*text);
    for (const auto& [cluster, value] : all.items()) {
      const auto asked_at = parse_rfc3339(value.at("asked_at").get<std::string>());
      if (!asked_at) throw std::runtime_error("asked_at is no time");
      CoordinatorList& list = lists.emplace_back();
      list.cluster = cluster;
      list.asked_at = *asked_at;
      for (const auto& [account, users] : value.at("accounts").items())
        list.accounts.push_back({account, users.get<std::vector<std::string>>()});
    }
  } catch (const std::exception& error) {
    return Error{ErrorKind::kCorrupt, file_in(root) + ": " + error.what()};
  }
  return lists;
}

Result<void> keep_coordinators(const std::string& root, const CoordinatorList& list) {
  auto lists = read_coordinators(root);
  if (!lists && lists.error().kind() != ErrorKind::kCorrupt) return lists.error();
  if (!lists) lists = std::vector<CoordinatorList>{};
  std::erase_if(*lists, [&](const CoordinatorList& one) { return one.cluster == list.cluster; });
  lists->push_back(list);
  Json all = Json::object();
  for (const CoordinatorList& one : *lists) {
    Json accounts = Json::object();
    for (const AccountCoordinators& account : one.accounts)
      accounts[account.account] = account.users;
    all[one.cluster] = {{"asked_at", format_rfc3339(one.asked_at, TimePrecision::kSeconds)},
                        {"accounts", std::move(accounts)}};
  }
  return replace_file(file_in(root), all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n",
                      kMode);
}

}  // namespace scriptorium::catalog

#include "backends/catalog/store_families.h"

#include <algorithm>

namespace scriptorium::catalog {
namespace {

// Owners whose families are in memory, and families of one owner that are compared: about 16 MiB at
// most, usually a tenth.
constexpr std::size_t kMostOwners = 1'024;
constexpr std::size_t kMostFamilies = 96;
constexpr std::size_t kMostScripts = 16'384;  // 2 MiB
// A family's last script is replaced by one that differs this much.
constexpr double kFollowsBelow = 0.8;

}  // namespace

Families::Families(sqlite::Connection& catalog)
    : catalog_(catalog),
      select_(catalog,
              "SELECT id, name, signature, last_name, last_signature FROM families WHERE owner = ? "
              "ORDER BY id DESC LIMIT ?"),
      insert_(catalog, "INSERT INTO families(owner, name, signature) VALUES(?, ?, ?)"),
      update_(catalog, "UPDATE families SET last_name = ?, last_signature = ? WHERE id = ?"),
      cache_(kMostOwners),
      of_scripts_(kMostScripts) {}

Families::List& Families::families(const std::string& owner) {
  if (List* known = cache_.find(owner)) return *known;
  List list;
  select_.bind(owner, kMostFamilies);
  while (select_.step()) {
    Family& family = list.emplace_back();
    family.id = select_.integer(0);
    family.first = {std::string(select_.text(1)), signature_of_bytes(select_.text(2))};
    family.last = family.first;
    if (!select_.is_null(3))
      family.last = {std::string(select_.text(3)), signature_of_bytes(select_.text(4))};
  }
  std::reverse(list.begin(), list.end());
  return cache_.insert(owner, std::move(list));
}

bool Families::begin() { return catalog_.in_transaction() || catalog_.execute("BEGIN IMMEDIATE"); }

std::uint64_t Families::family_of(const std::string& owner, std::string_view job_name,
                                  const EventFile& script) {
  const std::string name = stable_name(job_name);
  const std::string key = std::to_string(owner.size()) + ' ' + owner + script.sha256 + name;
  if (const std::uint64_t* known = of_scripts_.find(key)) return *known;
  const std::uint64_t family = find_or_make(owner, name, *script.bytes);
  if (family != 0) of_scripts_.insert(key, family);
  return family;
}

std::uint64_t Families::find_or_make(const std::string& owner, const std::string& name,
                                     std::string_view script) {
  const Variant given{name, script_signature(script)};
  List& list = families(owner);
  Family* best = nullptr;
  double best_similarity = -1;
  bool best_has_name = false;
  for (Family& family : list) {
    const bool has_name = family.first.name == name || family.last.name == name;
    if (!has_name && given.signature.runs == 0) continue;  // an empty script says nothing
    const double found = std::max(similarity(family.first.signature, given.signature),
                                  similarity(family.last.signature, given.signature));
    if (!same_family(has_name, found)) continue;
    // Of equals the one that has the job's name.
    if (found > best_similarity || (found == best_similarity && has_name)) {
      best = &family;
      best_similarity = found;
      best_has_name = has_name;
    }
  }
  if (best != nullptr) {
    if ((best_similarity < kFollowsBelow || !best_has_name) && begin()) {
      update_.run(name, sqlite::Blob{signature_bytes(given.signature)}, best->id);
      best->last = given;
    }
    return static_cast<std::uint64_t>(best->id);
  }
  if (!begin() || !insert_.run(owner, name, sqlite::Blob{signature_bytes(given.signature)}))
    return 0;
  const std::int64_t id = catalog_.last_insert_id();
  if (list.size() >= kMostFamilies) list.erase(list.begin());
  list.push_back({id, given, given});
  return static_cast<std::uint64_t>(id);
}

}  // namespace scriptorium::catalog

#include "backends/file/tree_leaves.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "backends/file/store.h"
#include "core/base/accounts.h"
#include "core/base/ascii.h"

namespace scriptorium::file {
namespace {

// ---- what a query asks of every job

void narrow(Wanted& wanted, const Query& query) {
  if (query.kind == Query::Kind::kAnd) {
    for (const Query& child : query.children) narrow(wanted, child);
  } else if (query.kind == Query::Kind::kRange && query.field == QueryField::kSubmitted) {
    wanted.time.from = std::max(wanted.time.from, query.from.value_or(wanted.time.from));
    wanted.time.to = std::min(wanted.time.to, query.to.value_or(wanted.time.to));
  } else if (query.kind == Query::Kind::kField && query.field == QueryField::kJob) {
    // Letters may be written in another case.
    if (is_all_digits(query.text)) wanted.job_id = safe_value(query.text);
  } else if (query.kind == Query::Kind::kField && query.field == QueryField::kUser) {
    // Digits may be a uid, and a longer name is cut.
    const bool exact = query.text.find('*') == std::string::npos && !is_all_digits(query.text) &&
                       query.text.size() < kMaxValueBytes / 3;
    // Who is not verified has the name that the job claims.
    if (exact && !wanted.folders)
      wanted.folders = {to_lower(safe_value(query.text)), std::string(kUnverified)};
  }
}

bool is_wanted_folder(const Wanted& wanted, const std::string& folder) {
  // "%75nverified" is the folder of a user of that name.
  return !wanted.folders || folder.starts_with('%') ||
         std::ranges::count(*wanted.folders, to_lower(folder)) != 0;
}

// ---- the walk

bool is_directory_name(int directory, const char* name, unsigned char type) {
  if (type != DT_UNKNOWN) return type == DT_DIR;
  struct stat st{};
  return ::fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

class LeafWalk {
 public:
  LeafWalk(const Layout& layout, const Wanted& wanted, const std::function<bool()>& ended)
      : layout_(layout), wanted_(wanted), ended_(ended) {}

  Leaves run(int root) {
    enter(root, "", 0, {});
    order();
    return std::move(leaves_);
  }

 private:
  void enter(int directory, const std::string& path, std::size_t depth,
             const Layout::DirectoryFacts& facts) {
    if (ended_()) {
      leaves_.finished = false;
      return;
    }
    if (depth == layout_.directory_depth()) {
      leaves_.list.push_back({path, span_of(facts)});
      return;
    }
    for (const std::string& name : names_in(directory, depth)) {
      Layout::DirectoryFacts inner = facts;
      if (!layout_.read_directory(depth, name, inner)) continue;
      if (inner.user && !is_wanted_folder(wanted_, *inner.user)) continue;
      if (!span_of(inner).overlaps(wanted_.time)) continue;
      const auto next = open_directory(directory, name);
      if (next) {
        enter(next->get(), path.empty() ? name : path + '/' + name, depth + 1, inner);
      } else if (next.error().kind() != ErrorKind::kVanished) {
        ++leaves_.closed;
      }
    }
  }

  std::vector<std::string> names_in(int directory, std::size_t depth) {
    std::vector<std::string> names;
    const auto listed = list_names(directory, [&](const char* name, unsigned char type) {
      if (*name != '.' && is_directory_name(directory, name, type)) names.emplace_back(name);
      return true;
    });
    if (!listed) {
      ++leaves_.closed;
      // Owners may pass through the root, but not list it.
      if (depth == 0 && layout_.begins_with_user()) {
        if (const auto we = find_user(::geteuid()); we && *we)
          names.push_back(safe_value((*we)->name));
      }
    }
    return names;
  }

  void order() {
    // Where a name does not tell, jobs of any time may be there, so that no part comes first.
    const bool unknown =
        std::ranges::any_of(leaves_.list, [](const Leaf& leaf) { return leaf.span == TimeSpan{}; });
    if (unknown) {
      for (Leaf& leaf : leaves_.list) leaf.span = {};
    }
    std::ranges::sort(leaves_.list, [](const Leaf& a, const Leaf& b) {
      return a.span.from != b.span.from ? a.span.from > b.span.from : a.path < b.path;
    });
  }

  const Layout& layout_;
  const Wanted& wanted_;
  const std::function<bool()>& ended_;
  Leaves leaves_;
};

}  // namespace

Wanted wanted_by(const Query& query, const Visibility& visibility) {
  Wanted wanted;
  narrow(wanted, query);
  if (!visibility.all && visibility.accounts.empty() && !wanted.folders) {
    std::vector<std::string> folders;
    for (const Visibility::User& user : visibility.users)
      folders.push_back(to_lower(safe_value(user.name)));
    wanted.folders = std::move(folders);
  }
  return wanted;
}

TimeSpan span_of(const Layout::DirectoryFacts& facts) {
  namespace chrono = std::chrono;
  if (!facts.year || *facts.year < 1970 || *facts.year > 2261) return {};
  const chrono::year year(static_cast<int>(*facts.year));
  chrono::year_month_day first = year / 1 / 1;
  chrono::sys_days next = (year + chrono::years(1)) / 1 / 1;
  if (facts.month) {
    first = year / *facts.month / 1;
    if (!first.ok()) return {};
    next = chrono::sys_days((chrono::year_month(year, first.month()) + chrono::months(1)) / 1);
    if (facts.day) {
      first = year / *facts.month / *facts.day;
      if (!first.ok()) return {};
      next = chrono::sys_days(first) + chrono::days(1);
    }
  }
  const auto nanoseconds = [](chrono::sys_days day) {
    return static_cast<std::int64_t>(day.time_since_epoch().count()) * 86'400 * kSecond;
  };
  return {.from = nanoseconds(first), .to = nanoseconds(next) - 1};
}

Leaves find_leaves(const Layout& layout, int root, const Wanted& wanted,
                   const std::function<bool()>& ended) {
  return LeafWalk(layout, wanted, ended).run(root);
}

}  // namespace scriptorium::file

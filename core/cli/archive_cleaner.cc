#include "core/cli/archive_cleaner.h"

#include <nlohmann/json.hpp>

#include "core/base/path.h"
#include "core/base/text.h"
#include "core/cli/redact_text.h"
#include "core/redact/stored_event.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kShownOfAReason = 20;
constexpr std::size_t kLongestLine = 4096;

}  // namespace

ArchiveCleaner::ArchiveCleaner(const RulesInForce& rules, bool prints, RedactionRecord* record,
                               Console& console)
    : rules_(*rules.rules),
      redactor_(rules.rules, rules.mode, EnvironmentRule{}),
      record_(record),
      console_(console),
      prints_(prints),
      line_(console) {}

Result<std::shared_ptr<const Event>> ArchiveCleaner::edit(const std::string& path,
                                                          const Event& stored) {
  ++read_;
  if (line_.due())
    line_.draw("read " + std::to_string(read_) + ", with secrets " + std::to_string(changed_));
  auto result = redact::redact_stored(redactor_, stored);
  if (!result) return result.error();
  for (const Redaction& r : result->found) {
    if (r.kept) counts_[r.rule].kept += r.count;
  }
  if (result->event != nullptr && record_ == nullptr)
    count(path, stored, *result->event, redact::added_redactions(stored, *result->event));
  return result->event;
}

Result<void> ArchiveCleaner::replacing(const std::string& path, const Event& before,
                                       const Event& after, bool resumed) {
  const auto removed = redact::added_redactions(before, after);
  count(path, before, after, removed);
  if (record_ == nullptr) return {};
  return record_->add(shown_path(path, before, after), after.job.id, removed, resumed);
}

void ArchiveCleaner::left(const std::string& path, std::string_view reason) {
  if (++named_[std::string(reason)] > kShownOfAReason) return;
  line_.clear();
  console_.err << "left alone: " << printable(masked_text(path, rules_)) << ": " << reason << "\n";
}

std::string ArchiveCleaner::shown_path(const std::string& path, const Event& before,
                                       const Event& after) const {
  return masked_text(before.job.name == after.job.name ? path : parent_of(path), rules_);
}

void ArchiveCleaner::count(const std::string& path, const Event& before, const Event& after,
                           const std::vector<Redaction>& removed) {
  ++changed_;
  std::string what;
  for (const Redaction& r : removed) {
    RuleCount& count = counts_[r.rule];
    count.removed += r.count;
    ++count.events;
    what += (what.empty() ? "" : ", ") + std::to_string(r.count) + " " + r.rule + " in " + r.where;
  }
  if (!prints_) return;
  line_.clear();
  console_.out << printable(shown_path(path, before, after), kLongestLine) << ": job "
               << printable(after.job.id) << ": " << printable(what, kLongestLine) << "\n";
}

void ArchiveCleaner::show(const RewritableSink::Summary& summary) {
  line_.clear();
  console_.out << console_.bold(count_of(summary.events, "event")) << " read, " << summary.changed
               << (record_ != nullptr ? " changed" : " would be changed");
  if (summary.resumed > 0)
    console_.out << ", " << summary.resumed << " completed that an earlier run had begun";
  if (summary.removed > 0)
    console_.out << ", " << count_of(summary.removed, "interrupted write") << " removed";
  console_.out << "\n";
  for (const auto& [rule, count] : counts_) {
    if (count.removed > 0)
      console_.out << "  " << rule << ": " << count.removed << " in "
                   << count_of(count.events, "event") << "\n";
    if (count.kept > 0) console_.out << "  " << rule << ": " << count.kept << " only reported\n";
  }
  for (const auto& [reason, count] : summary.left)
    console_.out << "  left alone: " << count << " (" << reason << ")\n";
}

Json ArchiveCleaner::json(const RewritableSink::Summary& summary) const {
  Json rules = Json::object();
  for (const auto& [rule, count] : counts_)
    rules[rule] = {{"removed", count.removed}, {"kept", count.kept}, {"events", count.events}};
  Json left = Json::object();
  for (const auto& [reason, count] : summary.left) left[reason] = count;
  return {{"applied", record_ != nullptr}, {"events", summary.events},
          {"changed", summary.changed},    {"resumed", summary.resumed},
          {"removed", summary.removed},    {"rules", std::move(rules)},
          {"left", std::move(left)}};
}

}  // namespace scriptorium::cli

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/rewritable_sink.h"
#include "core/cli/console.h"
#include "core/cli/progress_line.h"
#include "core/cli/redact_record.h"
#include "core/cli/redact_rules.h"
#include "core/redact/redactor.h"

namespace scriptorium::cli {

// Applies the rules to each event of one pass over a sink's store, says what they find, and writes
// the record. Borrows all that it is given.
class ArchiveCleaner final : public RewritableSink::Editor {
 public:
  // `record`: null in a pass that changes nothing. `prints`: a line for each event with a finding.
  ArchiveCleaner(const RulesInForce& rules, bool prints, RedactionRecord* record, Console& console);

  Result<std::shared_ptr<const Event>> edit(const std::string& path, const Event& stored) override;
  Result<void> replacing(const std::string& path, const Event& before, const Event& after,
                         bool resumed) override;
  void left(const std::string& path, std::string_view reason) override;

  // What the pass did, for people and for programs.
  void show(const RewritableSink::Summary& summary);
  nlohmann::ordered_json json(const RewritableSink::Summary& summary) const;

 private:
  struct RuleCount {
    std::uint64_t removed = 0;
    std::uint64_t kept = 0;
    std::uint64_t events = 0;
  };

  // A name that holds a secret is not shown, nor one that the job's name gave.
  std::string shown_path(const std::string& path, const Event& before, const Event& after) const;
  void count(const std::string& path, const Event& before, const Event& after,
             const std::vector<Redaction>& removed);

  const redact::RuleSet& rules_;
  const redact::Redactor redactor_;
  RedactionRecord* const record_;
  Console& console_;
  const bool prints_;
  ProgressLine line_;
  std::uint64_t read_ = 0;
  std::uint64_t changed_ = 0;
  std::map<std::string, RuleCount> counts_;
  std::map<std::string, std::uint64_t> named_;
};

}  // namespace scriptorium::cli

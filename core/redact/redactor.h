#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/api/spool_adapter.h"
#include "core/base/result.h"
#include "core/config/config.h"
#include "core/redact/rule_set.h"

namespace scriptorium::redact {

// Removes what a site does not keep from a job, before anything of it reaches a disk. Applies the
// source's `environment` option, then the rules to every text that a user could have written. A
// secret that was found in one part of a job is removed from all its other parts too.
//
// Threads: any. Owns nothing but its share of the rules.
class Redactor {
 public:
  // Without `rules`, any mode but kOff fails.
  Redactor(std::shared_ptr<const RuleSet> rules, Mode mode, EnvironmentRule environment);

  // Keeps everything.
  static std::shared_ptr<const Redactor> none();

  // What an adapter made of an entry, in place; `environment` may become null and mixed_files
  // fewer. What was found, one item for each rule and place. Strong guarantee: an error means that
  // `job` must not be kept.
  Result<std::vector<Redaction>> redact(ParsedJob& job) const;
  // An event of a free source or an archive, in place: its texts and extra_json, and its files with
  // their sizes and hashes; adds to event.redactions. May remove the file "environment".
  Result<void> redact(Event& event) const;
  // The texts that a scheduler's answer brought into an event: name, work_dir, and so on. Secrets
  // that were removed from its other parts are no longer known.
  Result<void> redact_texts(Event& event) const;

  Mode mode() const noexcept { return mode_; }
  bool keeps_everything() const noexcept {
    return mode_ == Mode::kOff && environment_.mode == EnvironmentRule::Mode::kAll;
  }

 private:
  std::vector<Redaction> drop_variables(ParsedJob& job) const;
  void drop_variables(Event& event) const;

  std::shared_ptr<const RuleSet> rules_;
  Mode mode_;
  EnvironmentRule environment_;
};

// Leaves of an event that cannot be redacted only what the scheduler itself names; `reason` becomes
// its problem. It is to be a dead letter.
void remove_payload(Event& event, const std::string& reason);

// Adds `more` to `into`, item by item of the same rule, place and `kept`.
void merge(std::vector<Redaction>& into, std::vector<Redaction> more);

}  // namespace scriptorium::redact

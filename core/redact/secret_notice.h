#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/redact/rule_set.h"

namespace scriptorium::redact {

// Whom a notice is written for.
enum class Reader : std::uint8_t {
  kOwner,    // "Your job script held ..."
  kAnybody,  // "The job script held ..."
};

// What the user of a job has to know about the secrets in it, one paragraph an item; empty if there
// is nothing to tell:
//
//   Your job script held what looks like a token of GitHub in line 12. It was not archived.
//   Your job's variable WANDB_API_KEY has the name of a secret. Its value was not archived.
//   Revoke what is secret: the scheduler's own copies of the job still hold it.
//
// `rules`, which may be null, say what a rule finds; a rule that they do not have is called by its
// name, because the event may come from another host or an earlier version. Variables that the
// source's option `environment` removed are not mentioned. The names of variables are the user's
// text: make them printable before they reach a terminal.
// Pure; any thread.
std::vector<std::string> secret_notice(const std::vector<Redaction>& redactions,
                                       const RuleSet* rules, Reader reader);

}  // namespace scriptorium::redact

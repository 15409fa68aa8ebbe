#pragma once

#include <memory>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"
#include "core/redact/redactor.h"

namespace scriptorium::redact {

// What rules make of an event that was stored before they existed.
struct StoredRedaction {
  std::shared_ptr<const Event> event;  // null: nothing is removed
  std::vector<Redaction> found;        // now; also what is only reported
};

// What `after` says was removed that `before` did not say yet.
std::vector<Redaction> added_redactions(const Event& before, const Event& after);

// Applies the rules to an event that was read back. Bytes that its sink does not hold are null. If
// something is removed, the event gets
// - the sizes and hashes of what is kept, and an id over the script that is kept;
// - no reference to an id over the bytes that it had, and no hash of a file that nobody can look
//   into (such as a job record that the sink does not keep): each would let a reader test guesses.
// Applied again, it finds nothing to remove. Pure; any thread.
Result<StoredRedaction> redact_stored(const Redactor& redactor, const Event& stored);

}  // namespace scriptorium::redact

#pragma once

#include <string>

#include "core/base/result.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Commands and the daemon talk over the Unix socket STATE_DIR/control.sock (mode 0600, so the
// daemon's user and root): one JSON object a line in, one out, then the connection ends.
//   {"command": "status"}                                               -> the contract of `status
//   --json`
//   {"command": "deadletters.list", "sink"?: "archive", "limit"?: 1000} ->
//   [{"sink","event_id","kind","cluster","job_id","reason",
//                                                    "attempts","first_attempt","last_attempt","bytes"}]
//   {"command": "deadletters.show", "event_id": "..."}                  -> {"event": {...},
//   "letters": [...]}
//   {"command": "deadletters.retry" | "deadletters.discard", "sink"?: "archive", "event_id": "..."
//   or ""} -> {"count": N}
//   {"command": "sinks.list"} ->
//   [{"sink","registered","waiting","waiting_bytes","refill_from_archive","dead","acknowledged",
//                                  "oldest_waiting_seconds","last_success","fill"?}]
//   {"command": "sinks.forget", "sink": "old"} -> {"waiting": N, "dead": N} that went with it
//   {"command": "sinks.fill", "sink": "new", "from"?: "archive", "since"?: "2026-11-21T00:00:00Z"}
//   -> the fill, as in sinks.list
//   {"command": "owners.list", "limit"?: 1000} -> [{"job_id","event_id","reason","noted_at"}]
//   without a verified owner
//   {"command": "owners.retry" | "owners.status"} ->
//   [{"source","waiting","asked","verified","rounds_done","last_error","round"?}]
//   {"command": "find", "job": "4711"}                                  -> [event, ...] as schema
//   1, texts included
//   {"command": "ping"}                                                 -> {"pid": N}
// The answer is {"ok": true, "result": ...} or {"ok": false, "error": "..."}.

// Sends one request to the daemon that owns `state_dir`. Without a running daemon, every command
// but status, ping, sinks.fill, owners.retry and owners.status is answered from the journal on
// disk, under the state_dir's lock. Returns "result" as JSON text; the daemon's error, or
// kTransient "no daemon runs on STATE_DIR" for those.
Result<std::string> control(const std::string& state_dir, const std::string& request_json,
                            Logger& log);

// The journal's commands, for both ways; the whole answer object.
std::string answer_from_journal(Journal& journal, const std::string& request_json);

}  // namespace scriptorium

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/daemon/listener.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Commands and the daemon talk over the Unix socket STATE_DIR/control.sock (mode 0600, so only the
// daemon's user and root can): a JSON object as one line in, one out, then the connection ends.
//   status                              -> the contract of `status --json`
//   deadletters.list  sink? limit?      -> [{"sink","event_id","kind","cluster","job_id","reason",
//                                           "attempts","first_attempt","last_attempt","bytes"}]
//   deadletters.show  event_id          -> {"event": {...}, "letters": [...]}
//   deadletters.retry sink? event_id    -> {"count": N}; event_id "" = all
//   deadletters.discard sink? event_id  -> {"count": N}; event_id "" = all
//   sinks.list                          -> [{"sink","registered","waiting","waiting_bytes",
//                                           "refill_from_archive","dead","acknowledged",
//                                           "oldest_waiting_seconds","last_success","fill"?}]
//   sinks.forget      sink              -> {"waiting": N, "dead": N} that were removed with it
//   sinks.fill        sink from? since? -> the fill, as in sinks.list
//   sinks.fill.stop   sink              -> the same, once nothing more is sent
//   owners.list       limit?            -> [{"job_id","event_id","reason","noted_at"}] of events
//                                          without a verified owner
//   owners.retry, owners.status         -> [{"source","waiting","asked","verified","rounds_done",
//                                           "last_error","round"?}]
//   find              job               -> [event, ...] as schema 1, texts included
//   ping                                -> {"pid": N}
// For example {"command": "sinks.fill", "sink": "new", "since": "2026-11-21T00:00:00Z"}.
// The answer is {"ok": true, "result": ...} or {"ok": false, "error": "..."}.

// Sends one request to the daemon that owns `state_dir`. Without a running daemon, answers from the
// journal on disk while holding the lock of state_dir; status, ping, sinks.fill, owners.retry and
// owners.status then fail with kTransient "no daemon runs on STATE_DIR". Returns "result" as JSON
// text, or the daemon's error.
Result<std::string> control(const std::string& state_dir, const std::string& request_json,
                            Logger& log);

// Answers the commands that need only the journal, for the daemon and for control(). Returns the
// whole answer.
std::string answer_from_journal(Journal& journal, const std::string& request_json);

// Answers commands on the socket until the listener is destroyed. `answer` gets a request (one line
// of JSON) and returns the whole answer; it runs in a thread of the listener, one request after the
// other. A client that sends nothing is cut off after 5 s.
using AnswerCommand = std::function<std::string(const std::string& request)>;
Result<std::unique_ptr<Listener>> serve_control(const std::string& state_dir, AnswerCommand answer,
                                                Logger& log);

// The path of the socket. kInvalidConfig, with the limit, if it is longer than the name of a socket
// may be (107 bytes).
Result<std::string> control_socket_path(const std::string& state_dir);

}  // namespace scriptorium

#pragma once

#include <string>

namespace scriptorium {

struct RunOptions {
  std::string config_file;
  bool once = false;      // scan, deliver, exit 0 only if everything was settled
  bool progress = false;  // with once, on a terminal: a line that counts
};

// The daemon, from start to end. Returns the exit code:
//   0
//   69 (EX_UNAVAILABLE) with `once`: not everything could be settled
//   70 (EX_SOFTWARE)    the spool opener died; start both again
//   73 (EX_CANTCREAT)   state_dir or journal cannot be made
//   74 (EX_IOERR)       the journal is damaged; the next start saves what can be read
//   75 (EX_TEMPFAIL)    another daemon owns state_dir, or `once` was interrupted
//   78 (EX_CONFIG)      the configuration has problems
// Threads: the main thread, before any other exists; blocks SIGTERM, SIGINT, SIGHUP for the whole
// process.
int run_daemon(const RunOptions& options);

}  // namespace scriptorium

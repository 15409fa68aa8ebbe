#pragma once

namespace scriptorium::cli {

// The command's exit codes, after sysexits.h. manual.cc explains each of them.
enum ExitCode : int {
  kExitGood = 0,
  kExitFound = 1,     // redact: there is something to remove; diff: the jobs differ
  kExitNotFound = 1,  // search: no job matches, as grep
  kExitUsage = 64,
  kExitDataError = 65,
  kExitNoInput = 66,
  kExitUnavailable = 69,
  kExitSoftware = 70,
  kExitCannotCreate = 73,
  kExitIoError = 74,
  kExitTryAgain = 75,
  kExitConfig = 78,
};

}  // namespace scriptorium::cli

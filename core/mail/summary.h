#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/mail/period.h"
#include "core/query/sum.h"

namespace scriptorium::mail {

using query::Sum;

// A finding of many jobs, and what its most wasteful job could ask for next time.
struct CostlyFinding {
  std::string id;                       // "cpu_low"
  Sum sum;                              // of the jobs that have it
  std::string job;                      // the most wasteful of them: "4711_3"
  std::string job_name;                 // what its owner called it: any bytes
  std::string text;                     // what that job's finding says, in English; may be empty
  std::vector<std::string> directives;  // "#SBATCH --mem=2G"; may be empty
  std::string condition;  // "if the rest of the job needs no more", English; may be empty
};

// A part of the jobs.
struct Part {
  std::string name;  // of an account ("" = none) or a user
  Sum sum;
};

// Whose jobs a mail is about, and who gets it.
enum class Audience {
  kUser,         // one user's, for this user
  kCoordinator,  // those of the accounts that a user coordinates, for this user
  kStaff,        // all jobs, for the site's staff
};

// What a mail says: what jobs on one cluster used in a period. Of what a job's owner wrote (names),
// any bytes may be in it.
struct Summary {
  Audience audience = Audience::kUser;
  std::string cluster;
  std::string user;  // who gets it; "" = the staff
  CalendarPeriod period;
  Sum now;
  Sum before;                           // of the period before; no jobs: nothing is said of a trend
  std::uint64_t unmeasured_jobs = 0;    // among now.jobs
  std::vector<CostlyFinding> findings;  // at most three, the most costly first
  std::vector<Part> accounts;           // for the others: at most ten, the most wasteful first
  std::vector<Part> users;              // as accounts; only for coordinators who may see users
  // Jobs submitted in the period of which redaction met a secret: how many, and some of their ids,
  // the newest first.
  std::uint64_t secret_jobs = 0;
  std::vector<std::string> secret_examples;
};

}  // namespace scriptorium::mail

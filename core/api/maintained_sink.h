#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace scriptorium {

// A sink whose store an administrator can check and repair. A sink that implements this interface
// returns it from Sink::maintained(). It lives as long as its sink.
//
// Threads: one call at a time, from a process that did not call start(). A running daemon may use
//          the same store meanwhile.
// Fails:   kVanished (nothing is stored yet), kExhausted (another process does the same), or
//          whatever prevents the work. What is wrong with the store is in the report.
class MaintainedSink {
 public:
  MaintainedSink() = default;
  MaintainedSink(const MaintainedSink&) = delete;
  MaintainedSink& operator=(const MaintainedSink&) = delete;
  virtual ~MaintainedSink() = default;

  struct Control {
    std::stop_token stop;  // ends the work after the current step
    // Called often. `of` is 0 where the end is not known.
    std::function<void(std::string_view step, std::uint64_t done, std::uint64_t of)> progress;
  };
  struct Finding {
    std::string place;    // "segments/000003.db: block 17"
    std::string problem;  // what is wrong there
    bool lost = false;    // rewrite() cannot repair it, but another sink may have it
    std::string command;  // what helps, if neither of these does; "" otherwise
  };
  struct Report {
    std::map<std::string, std::uint64_t> figures;  // "jobs", "blocks"; names that end in "bytes"
                                                   // are bytes, in "time" seconds since 1970
    std::vector<Finding> findings;
    bool interrupted = false;  // by `stop`; the same call continues
  };

  // Reads everything that is stored and compares it with what it says of itself. Changes nothing.
  virtual Result<Report> check(const Control& control) = 0;
  // Figures, without reading contents.
  virtual Result<Report> stats() = 0;

  enum class Rewrite {
    kDamaged,   // what check() finds fault with
    kUnpacked,  // what would be noticeably smaller
  };
  // Makes parts of the store once more from the events in them. The findings are what is lost. May
  // end at any point, also by a crash: the next call continues.
  virtual Result<Report> rewrite(Rewrite which, const Control& control) = 0;
};

}  // namespace scriptorium

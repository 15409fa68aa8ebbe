#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/api/sink.h"
#include "core/base/error.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/daemon/setup.h"
#include "core/query/stores.h"
#include "core/serve/remote_store.h"

namespace scriptorium::cli {

// The searchable sinks of a configuration, for a command.
// Owns:    the sinks and what they borrow.
// Threads: the main thread opens them.
class OpenStores {
 public:
  OpenStores() = default;
  OpenStores(OpenStores&&) = default;
  OpenStores& operator=(OpenStores&&) = delete;

  struct NamedSink {
    std::string name;
    std::unique_ptr<Sink> sink;
  };

  // The fastest first.
  const std::vector<query::Store>& list() const noexcept { return stores_; }
  const Setup& setup() const noexcept { return *setup_; }
  const std::string& cluster() const noexcept { return setup_->config.core.cluster; }
  Logger& log() noexcept { return *log_; }
  // Every sink that could be opened, searchable or not, in the configuration's order.
  const std::vector<NamedSink>& sinks() const noexcept { return sinks_; }
  const std::vector<std::string>& closed() const noexcept { return closed_; }
  // Whether the query service answers for this store, which then has the jobs that the caller may
  // see and no others.
  bool is_remote(const query::Store& store) const noexcept;
  // Whether it answers for any; then the caller is a user who may not ask the daemon either.
  bool asks_service() const noexcept { return !remote_.empty(); }
  // Why the query service, which would answer for the closed stores, does not; "": it does, or
  // there is none on this host.
  const std::string& service_problem() const noexcept { return service_problem_; }
  // True if a sink is missing: an answer may lack what it has.
  bool incomplete() const noexcept { return incomplete_; }
  void mark_incomplete() noexcept { incomplete_ = true; }

 private:
  friend std::optional<OpenStores> open_stores_or_say(const Arguments& arguments, Console& console,
                                                      int& code);
  friend OpenStores open_local_stores(Setup setup, const std::string& only, Console& console);
  friend OpenStores open_stores(Setup setup, const std::string& only, Console& console);

  void ask_service(Console& console);

  std::unique_ptr<Setup> setup_;
  std::unique_ptr<Logger> log_;
  std::vector<NamedSink> sinks_;
  std::vector<query::Store> stores_;
  std::vector<std::string> closed_;                          // stores that the caller may not read
  std::vector<std::unique_ptr<serve::RemoteStore>> remote_;  // for them
  std::string service_problem_;
  bool incomplete_ = false;
};

// Opens the sinks of `setup`; `only`: none but this one. Says which cannot be opened. An index that
// the caller may not read is left out without a word: the other stores give what they may.
OpenStores open_local_stores(Setup setup, const std::string& only, Console& console);
// The same, but asks the query service of this host for such an index.
OpenStores open_stores(Setup setup, const std::string& only, Console& console);

// Becomes the daemon's user if it is root, loads the configuration and opens its sinks, or only
// `--in`. Returns nothing, prints why and sets `code` if no sink can be searched.
std::optional<OpenStores> open_stores_or_say(const Arguments& arguments, Console& console,
                                             int& code);

// Prints which stores were left out since the caller may not read them.
void say_closed(const OpenStores& open, Console& console);

// Prints the refusals; returns the exit code for when no store answered.
int say_refusals(const std::vector<query::Refusal>& refused, Console& console);

}  // namespace scriptorium::cli

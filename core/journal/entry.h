#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/journal/journal_types.h"

// What the writer does in its transactions, in the order in which it was queued.
namespace scriptorium::journal {

class Writer;

struct AppendMany {
  std::string source;
  std::vector<std::shared_ptr<const Event>> events;
  std::optional<std::string> position;
};
struct PutMark {
  std::string source;
  CaptureMark mark;
};
struct ForgetMarks {
  std::string source;
  std::vector<std::string> entries;
};
struct ResolveMany {
  std::vector<Resolved> events;
};
// An unresolved event that cannot be read: its sinks get it as a dead letter.
struct PublishDamaged {
  std::uint64_t ticket = 0;
};
// Events that an archive has proved to hold.
struct ReleaseMany {
  struct Item {
    std::uint64_t sequence = 0;
    std::string locator;  // encode_locator()
  };
  std::vector<Item> items;
};
struct SettleMany {
  SinkId sink = 0;
  std::vector<Settle> settlements;
  std::uint64_t cursor = 0;
};
// Anything else. It has a transaction of its own, which is tried once. `done` gets the result after
// commit or rollback.
struct Command {
  std::function<Result<std::uint64_t>(Writer&)> run;
  std::function<void(Result<std::uint64_t>)> done;
};

struct Entry {
  std::variant<Append, AppendMany, PutMark, ForgetMarks, ResolveMany, PublishDamaged, ReleaseMany,
               SettleMany, Command>
      what;
  std::uint64_t bytes = 0;
  bool urgent = true;  // a caller waits for it, so it is not held back for a larger commit

  bool is_command() const { return std::holds_alternative<Command>(what); }
};

}  // namespace scriptorium::journal

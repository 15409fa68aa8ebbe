#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/base/guarded.h"

namespace scriptorium::journal {

// Calls a source back once there may be room for what was refused to it.
// Threads: any. A call runs under this class's lock, so that set() with an empty call returns only
// when none is running; it must be quick and must not call the journal.
class RoomCalls {
 public:
  enum Reason : unsigned { kNoRoom = 1, kTooLarge = 2, kOverShare = 4 };

  void set(const std::string& source, std::function<void()> call) {
    calls_.with([&](auto& calls) {
      if (call) {
        calls[source].call = std::move(call);
      } else {
        calls.erase(source);
      }
    });
  }
  void note_refused(const std::string& source, unsigned reasons) {
    calls_.with([&](auto& calls) {
      if (const auto it = calls.find(source); it != calls.end()) it->second.refused |= reasons;
    });
  }
  // Calls those to which something was refused for one of these reasons.
  void call(unsigned reasons) {
    calls_.with([&](auto& calls) {
      for (auto& [source, room] : calls) {
        if ((room.refused & reasons) == 0) continue;
        room.refused &= ~reasons;
        room.call();
      }
    });
  }

 private:
  struct Room {
    std::function<void()> call;
    unsigned refused = 0;  // Reasons, since the last call
  };
  Guarded<std::map<std::string, Room>> calls_;
};

}  // namespace scriptorium::journal

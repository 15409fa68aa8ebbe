#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/api/event.h"
#include "core/base/result.h"

namespace scriptorium {

// A sink that can replace what it stored earlier. Core uses it to remove secrets that were archived
// before there were rules against them: core decides what an event becomes, the sink finds what it
// has of the event and replaces it, so that nothing of the former bytes is left in its files.
//
// A sink that implements this interface returns it from Sink::rewritable(). It lives as long as its
// sink.
//
// Threads: one call at a time, before start() or after stop(). No other process may write to the
//          store meanwhile.
class RewritableSink {
 public:
  RewritableSink() = default;
  RewritableSink(const RewritableSink&) = delete;
  RewritableSink& operator=(const RewritableSink&) = delete;
  virtual ~RewritableSink() = default;

  // What core does with each event. `path` says where it is, for a person: the absolute path of a
  // file or directory, or another place. It may contain any byte but NUL.
  class Editor {
   public:
    Editor() = default;
    Editor(const Editor&) = delete;
    Editor& operator=(const Editor&) = delete;
    virtual ~Editor() = default;

    // What the stored event becomes; null: it stays as it is. The event has all bytes that the
    // store holds; bytes that it does not hold are null. A file that is missing from the answer is
    // removed. An error leaves the event as it is; it is counted, and the pass continues.
    virtual Result<std::shared_ptr<const Event>> edit(const std::string& path,
                                                      const Event& stored) = 0;
    // What the event becomes is durable, but not yet in the place of what it was. May be
    // called again for the same event after a crash, then with `resumed`. `before` and `after` are
    // without bytes. An error ends the pass.
    virtual Result<void> replacing(const std::string& path, const Event& before, const Event& after,
                                   bool resumed) = 0;
    // A file, a directory or another part of the store that was left alone, with one of the reasons
    // of `Summary::left`.
    virtual void left(const std::string& path, std::string_view reason) = 0;
  };

  struct Pass {
    // A tree of files, or a part of it, not necessarily this sink's own; "": all that this sink
    // stored.
    std::string directory;
    bool apply = false;      // otherwise nothing on the disk changes, and replacing() is not called
    bool exclusive = false;  // nobody else can be writing: remains of dead processes may be removed
    std::stop_token stop;    // ends the pass after the current event
  };
  struct Summary {
    std::uint64_t events = 0;   // read
    std::uint64_t changed = 0;  // replaced; without `apply`: would be
    std::uint64_t resumed = 0;  // brought to their end after an earlier pass was interrupted
    std::uint64_t removed = 0;  // remains of interrupted writes
    std::map<std::string, std::uint64_t> left;  // what was left alone, by reason (a constant text)
  };

  // Whether it can change a tree of files that it did not write itself.
  virtual bool takes_directories() const { return true; }

  // Visits every event. A pass survives a crash at any point: the next one brings it to its end.
  // Owner, mode and access list of each file are kept. Idempotent. Fails: kInvalidConfig (there is
  // no such directory, or it may not be read), or what replacing() returned; a file or an event
  // with a problem is counted in `left` and does not end the pass.
  virtual Result<Summary> rewrite(const Pass& pass, Editor& editor) = 0;
};

}  // namespace scriptorium

#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::mail {

// What a mail is about, in UTF-8. There is never a second mail of the same key.
struct MailKey {
  std::string kind;  // "user", "site"
  std::string cluster;
  std::string user;    // a login; of the site an address
  std::string period;  // CalendarPeriod::name()

  auto operator<=>(const MailKey&) const = default;
  // 32 hexadecimal digits: in file names and as the Message-ID.
  std::string id() const;
};

enum class MailState {
  kNone,     // nothing was tried
  kClaimed,  // given to the mail program, which did not confirm: it may have it or not
  kWaiting,  // the mail program did not take it: to be tried again
  kTaken,    // the mail program has it
  kRefused,  // it will never take it
};

struct MailEntry {
  MailState state = MailState::kNone;
  std::string recipient;  // its address
  std::string reason;     // of kWaiting and kRefused
  Timestamp since;        // the first claim
};

// Which mails were handed over, on disk, so that whatever ends this process at whatever moment, no
// mail is sent twice and each that may be lost is known. In the folder:
//   lock            held while a Ledger is open
//   PERIOD.jsonl    each step of each mail of a period, a line each
//   waiting/ID.eml  what the mail program did not take
//
// Errors: as the functions say, and those of the disk. After an error of claim() nothing may be
// handed over.
// Threads: one at a time.
class Ledger {
 public:
  // Makes the folder (mode 0711: others may open a file of it whose name they know, but none of a
  // ledger) if it is not there, and reads what is in it. kTransient if another process has it open;
  // kCorrupt, with file and line, for a line that is none.
  static Result<Ledger> open(const std::string& folder);

  MailEntry find(const MailKey& key) const;
  // Those in this state, oldest first.
  std::vector<std::pair<MailKey, MailEntry>> all(MailState state) const;

  // Before a hand-over. It is on the disk when this returns.
  Result<void> claim(const MailKey& key, const std::string& recipient, Timestamp now);
  Result<void> taken(const MailKey& key, Timestamp now);
  // Keeps the message for the next time.
  Result<void> wait(const MailKey& key, const std::string& reason, std::string_view message,
                    Timestamp now);
  Result<void> refused(const MailKey& key, const std::string& reason, Timestamp now);
  // What wait() kept.
  Result<std::string> message(const MailKey& key) const;

  // Whether everybody was considered for a period.
  bool is_done(std::string_view kind, std::string_view period) const;
  Result<void> done(std::string_view kind, std::string_view period, Timestamp now);

 private:
  Ledger(std::string folder, UniqueFd lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}
  Result<void> read(const std::string& name);
  Result<void> take_line(std::string_view line);
  Result<void> add(const MailKey& key, MailEntry entry, Timestamp now, bool sync);
  Result<void> write(const std::string& period, const std::string& line, bool sync);
  std::string waiting_file(const MailKey& key) const;

  std::string folder_;
  UniqueFd lock_;
  std::map<std::string, UniqueFd> files_;  // by period
  std::map<MailKey, MailEntry> entries_;
  std::set<std::pair<std::string, std::string>> done_;  // kind, period
};

}  // namespace scriptorium::mail

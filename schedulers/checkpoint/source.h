#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/api/free_source.h"
#include "core/api/kit/repeat_limit.h"
#include "core/api/options.h"
#include "core/api/plugin_context.h"
#include "core/base/guarded.h"
#include "schedulers/checkpoint/user_records.h"

namespace scriptorium::checkpoint_records {

struct RecordsConfig {
  std::string folder = "/var/lib/scriptorium-checkpointd";
  std::string user_folder = "/var/lib/scriptorium-run";
};
std::vector<OptionInfo> describe();
RecordsConfig read_config(const Table& table, Problems& problems);

// The records of this node's scriptorium-checkpointd as events job.checkpoint. A record is given to
// the journal, then removed. After a crash in between it is read again, and gives the same id.
//
// What is in the folder is believed only if it belongs to the folder's owner, which is the service:
// the daemon itself may write there, as it removes records. What is not a record is removed and
// counted, and stops nothing. inotify is a hint: the folder is also read each minute, and may be
// made after the daemon has started.
//
// Records of programs that save themselves come from a second folder (UserRecords), which is read
// at most once a second, as any user can cause a notification there.
class RecordsSource final : public FreeSource {
 public:
  // `rescan`: how often the folder is read without a notification.
  RecordsSource(RecordsConfig config, const PluginContext& context,
                std::chrono::milliseconds rescan = std::chrono::minutes(1));

  Result<void> run(EventWriter& writer, std::stop_token stop, bool once) override;
  std::string status_json() const override;

 private:
  struct Status {
    std::uint64_t records = 0;
    std::uint64_t refused = 0;
    std::uint64_t not_removed = 0;  // now
  };
  // A record and its name in the folder.
  struct Read {
    std::string name;
    Event event;
  };

  // Takes all that is there now.
  Result<void> collect(EventWriter& writer, const std::stop_token& stop);
  Result<void> write(EventWriter& writer, int directory, std::vector<Read> batch);
  void remove(int directory, const std::string& name);
  void note_unusable(const std::string& name, const Error& why);

  const RecordsConfig config_;
  const PluginContext context_;
  const std::chrono::milliseconds rescan_;
  UserRecords user_records_;
  RepeatLimit repeats_;
  std::set<std::string> left_;  // names that were dealt with and could not be removed
  Guarded<Status> status_;
};

}  // namespace scriptorium::checkpoint_records

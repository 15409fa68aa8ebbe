#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "backends/file/acl.h"
#include "backends/file/archive.h"
#include "backends/file/config.h"
#include "backends/file/layout.h"
#include "backends/file/store.h"
#include "core/api/sink.h"
#include "core/base/guarded.h"

namespace scriptorium::file {

// A tree of files. Acknowledged means: each file and its name, and the name of every directory
// above it, would survive a power cut.
//
// Each file is written under a temporary name, given its access list, synced and renamed to a name
// that was free; the metadata comes last, once the other names are safe, so where it stands the
// event is whole. A second delivery finds its files, by the id in the metadata or else by equal
// bytes, and changes nothing. Another event with the same path takes the next free
// ".2". An event that says which one it `replaces`, as its owner was not known then, is stored like
// any other; after that the files of the other are removed. Where both have one path, access lists
// and metadata change instead.
//
// Owns:    nothing between calls but what it remembers: the root is opened anew for each batch, so
// that a file system
//          that went away and came back is found again.
// Threads: as Sink says; deliver() may run in several at once.
// Fails:   as retry, with the words of file_error(); a name that the file system can never take is
// rejected.
class FileSink final : public Sink {
 public:
  // `config` must have passed parse_config().
  static Result<std::unique_ptr<FileSink>> create(FileConfig config, const PluginContext& context);

  Result<void> check() override;
  Result<void> start() override;
  void deliver(std::vector<Delivery> batch) override;
  Result<std::vector<StoredJob>> find(std::string_view job_id) override;
  std::string status_json() const override;
  ReadableSink* readable() override { return archive_.keeps_whole_events() ? &archive_ : nullptr; }
  std::vector<std::string> directories() const override { return {config_.root}; }

 private:
  struct Item;
  struct Directory;
  struct Batch;
  // What start() found out.
  struct Prepared {
    Readers readers;
    bool access_lists = false;  // the file system takes them, and the config wants them
    uid_t owner = 0;            // of what we create; not ours where the server maps users
    bool batch_sync = false;    // one syncfs is sound and pays here
  };

  FileSink(FileConfig config, Layout layout, TemporaryNames names, const PluginContext& context);

  bool needs_access_lists() const noexcept;
  Result<UniqueFd> open_root() const;
  Result<void> make_root(const Readers& readers);
  // Writes and removes a file in an open directory.
  Result<Prepared> probe(int directory, Readers readers);
  Result<std::shared_ptr<const Prepared>> prepare();

  bool leaves_room(int root, const std::vector<Delivery>& batch) const;  // min_free_bytes
  void deliver_some(std::vector<Delivery>& batch, std::size_t& next, int root,
                    const Prepared& prepared);
  void make_item(Item& item, Delivery& delivery) const;
  Result<std::shared_ptr<Directory>> open_place(Batch& batch, const Item& item);
  Result<UniqueFd> open_or_make(Batch& batch, int parent, const std::string& name,
                                const std::string& path, std::optional<uid_t> reader);
  Result<UniqueFd> make_directory(const Prepared& prepared, int parent, const std::string& name,
                                  std::optional<uid_t> reader);
  void admit_readers(int root, const Readers& readers);
  void admit_owner(const Prepared& prepared, int directory, const std::string& path, uid_t reader);
  Result<void> grant(const Prepared& prepared, int fd, AclTarget target,
                     std::optional<uid_t> reader) const;

  Result<void> write_temporary(Batch& batch, Item& item, FileKind kind, bool keep_open);
  // Whether the names of a slot are this event's own (all or some), free, or another's.
  struct Slot {
    bool other = false;
    std::vector<FileKind> missing;
  };
  Result<Slot> examine(const Batch& batch, const Item& item, unsigned slot) const;
  Result<void> find_slot(const Batch& batch, Item& item) const;
  enum class Names { kAll, kContents, kMetadata };
  Result<void> put_in_place(Batch& batch, Item& item, Names names);
  void drop_temporaries(Item& item);
  Item replaced_item(const Item& item) const;
  Result<bool> find_replaced(const Batch& batch, Item& item) const;
  Result<bool> replace_in_place(Batch& batch, Item& item);
  Result<void> remove_replaced(const Batch& batch, const Item& item) const;
  static Result<void> sync_file_systems(const Batch& batch);
  static void sync_data(Batch& batch);
  void sync_names(Batch& batch);

  const FileConfig config_;
  const Layout layout_;
  Archive archive_{config_, layout_};
  TemporaryNames names_;
  const std::string instance_;
  Logger& log_;
  const Clock& clock_;

  std::mutex
      prepare_mutex_;  // two workers must not prepare at once; held over the file system's calls
  Guarded<std::shared_ptr<const Prepared>> prepared_;
  // Directories that are known to be durable and free of stale temporaries. Bounded: when full it
  // is emptied.
  Guarded<std::unordered_set<std::string>> known_;
  std::atomic<bool> said_no_access_lists_{false};
  std::atomic<bool> said_readers_shut_out_{false};

  std::atomic<std::uint64_t> stored_{0};
  std::atomic<std::uint64_t> found_again_{0};
  std::atomic<std::uint64_t> suffixed_{0};
  std::atomic<std::uint64_t> replaced_{0};
  std::atomic<std::uint64_t> stale_removed_{0};
};

}  // namespace scriptorium::file

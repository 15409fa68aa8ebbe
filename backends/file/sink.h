#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/file/access.h"
#include "backends/file/archive.h"
#include "backends/file/batch.h"
#include "backends/file/config.h"
#include "backends/file/directories.h"
#include "backends/file/layout.h"
#include "backends/file/placement.h"
#include "backends/file/replacement.h"
#include "backends/file/root.h"
#include "backends/file/searchable.h"
#include "backends/file/store.h"
#include "backends/file/tree_rewriter.h"
#include "core/api/sink.h"

namespace scriptorium::file {

// A tree of files. Acknowledged means: each file and its name, and the name of every directory
// above it, would survive a power cut.
//
// Each file is written under a temporary name, given its access list, synced and renamed to a name
// that was free; the metadata comes last, once the other names are safe, so where it is the
// event is whole. A second delivery finds its files, by the id in the metadata or else by equal
// bytes, and changes nothing. Another event with the same path takes the next free
// ".2". An event that says which one it `replaces`, as its owner was not known then, is stored like
// any other; after that the files of the other are removed. Where both have one path, access lists
// and metadata change instead.
//
// Owns:    nothing between calls but what it remembers: each batch opens the root again, so that a
//          file system that went away and came back is found again.
// Threads: as Sink says; deliver() may run in several at once.
// Fails:   as retry, with the words of file_error(); a name that the file system can never take is
//          rejected.
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
  RewritableSink* rewritable() override { return &rewriter_; }
  Searchable* searchable() override { return keeps(FileKind::kMetadata) ? &search_ : nullptr; }

 private:
  FileSink(FileConfig config, Layout layout, TemporaryNames names, const PluginContext& context);

  bool keeps(FileKind kind) const noexcept;

  // Takes as many of the batch as its descriptors allow, and brings them to an end.
  void deliver_some(std::vector<Delivery>& deliveries, std::size_t& next, int root,
                    const Prepared& prepared);
  Item make_item(Delivery& delivery) const;
  // Up to the temporary files. What prevents that is the item's error.
  Result<void> prepare_item(Batch& batch, Item& item);
  void put_in_place(Batch& batch);
  void put_all_in_place(Batch& batch, Placement::Names names);
  void remove_replaced(Batch& batch);
  void settle(Item& item);

  const FileConfig config_;
  const Layout layout_;
  Archive archive_{config_, layout_};
  TemporaryNames names_;
  TreeRewriter rewriter_{names_, config_.root};
  const std::string instance_;
  Logger& log_;
  const Clock& clock_;
  TreeSearch search_{config_, layout_, clock_};
  Access access_;
  Root root_;
  Directories directories_;
  Placement placement_;
  Replacement replacement_;

  std::atomic<std::uint64_t> stored_{0};
  std::atomic<std::uint64_t> found_again_{0};
  std::atomic<std::uint64_t> suffixed_{0};
  std::atomic<std::uint64_t> replaced_{0};
};

}  // namespace scriptorium::file

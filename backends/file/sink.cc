#include "backends/file/sink.h"

#include <algorithm>
#include <utility>

#include "backends/file/archive_search.h"
#include "backends/file/environment.h"
#include "backends/file/job_files.h"
#include "core/base/fault_point.h"
#include "core/base/number.h"

namespace scriptorium::file {
namespace {

// Descriptors that one batch may hold open; the usual limit of a process is 1024.
constexpr std::size_t kMaxOpen = 384;
// From this many files on, two syncfs calls cost less than an fsync of each (README, "What a batch
// costs").
constexpr std::size_t kBatchSyncFrom = 6;

std::optional<uid_t> verified_uid(const Event& event) {
  if (!event.user.verified || !event.user.id) return std::nullopt;
  const auto uid = parse_number<uid_t>(*event.user.id);
  return uid == static_cast<uid_t>(-1) ? std::nullopt : uid;
}

}  // namespace

Result<std::unique_ptr<FileSink>> FileSink::create(FileConfig config,
                                                   const PluginContext& context) {
  auto layout = Layout::parse(config.layout);
  if (!layout) return layout.error().with_context("layout");
  auto names = TemporaryNames::create();
  if (!names) return names.error();
  return std::unique_ptr<FileSink>(
      new FileSink(std::move(config), *std::move(layout), *std::move(names), context));
}

FileSink::FileSink(FileConfig config, Layout layout, TemporaryNames names,
                   const PluginContext& context)
    : config_(std::move(config)),
      layout_(std::move(layout)),
      names_(std::move(names)),
      instance_(context.name),
      log_(context.log),
      clock_(context.clock),
      access_(config_, names_, instance_, log_),
      root_(access_, context.acknowledged),
      directories_(access_),
      placement_(access_),
      replacement_(layout_, placement_, access_) {}

bool FileSink::keeps(FileKind kind) const noexcept {
  return std::ranges::count(config_.kinds, kind) != 0;
}

Result<void> FileSink::check() { return root_.check(); }

Result<void> FileSink::start() {
  root_.forget();
  auto prepared = root_.prepare();
  if (!prepared) return prepared.error();
  if (config_.owner_may_read && (*prepared)->access_lists && !layout_.begins_with_user()) {
    log_.info("FILE_OWNERS_NEED_A_WAY",
              "The layout does not begin with {user}, so owners may read their files but reach "
              "them only if the directories above are opened to them by hand",
              {{"sink", instance_}, {"layout", config_.layout}});
  }
  return {};
}

// ---- one batch

void FileSink::deliver(std::vector<Delivery> batch) {
  const auto refuse = [&](const std::string& reason) {
    for (Delivery& d : batch) d.retry(reason);
  };
  const auto prepared = root_.prepare();
  if (!prepared) return refuse(prepared.error().message());
  const auto root = root_.open();
  if (!root) return refuse(root.error().message());
  if (const auto tree = root_.require_tree(root->get()); !tree)
    return refuse(tree.error().message());
  if (!root_.leaves_room(root->get(), batch))
    return refuse("less than min_free_bytes would be free on root's file system");
  for (std::size_t next = 0; next < batch.size();)
    deliver_some(batch, next, root->get(), **prepared);
}

void FileSink::deliver_some(std::vector<Delivery>& deliveries, std::size_t& next, int root,
                            const Prepared& prepared) {
  Batch batch;
  batch.root = root;
  batch.prepared = &prepared;
  const std::size_t rest = deliveries.size() - next;
  batch.one_sync = prepared.batch_sync && (config_.sync == SyncMode::kBatch ||
                                           rest * config_.kinds.size() >= kBatchSyncFrom);
  batch.items.reserve(rest);
  for (; next < deliveries.size() && batch.directories.size() + batch.open_files < kMaxOpen;
       ++next) {
    Item& item = batch.items.emplace_back(make_item(deliveries[next]));
    if (!item.error && item.event().replaces && replacement_.lacks_contents(item)) {
      if (auto taken = replacement_.take_contents(batch, item); !taken) item.error = taken.error();
    }
    if (item.error || !item.has_files()) continue;
    if (auto ready = prepare_item(batch, item); !ready) item.error = ready.error();
  }
  batch.sync_data();
  FAULT_POINT("file.synced");
  put_in_place(batch);
  for (Item& item : batch.items) {
    if (item.directory != nullptr) Placement::drop_temporaries(item);
  }
  directories_.note_durable(batch.sync_names());
  remove_replaced(batch);
  FAULT_POINT("file.before_ack");
  for (Item& item : batch.items) settle(item);
}

Item FileSink::make_item(Delivery& delivery) const {
  const Event& event = delivery.event();
  Item item;
  item.delivery = &delivery;
  item.id = event.id;
  item.place = layout_.place(event);
  if (config_.owner_may_read) item.reader = verified_uid(event);
  for (const FileKind kind : kinds_of(event, config_)) {
    if (kind == FileKind::kMetadata) {
      item.file(kind).emplace().bytes = record_of(event);
      continue;
    }
    const EventFile* from = event.file(to_string(kind));
    if (from == nullptr) continue;
    if (from->bytes == nullptr && event.replaces) continue;
    if (from->bytes == nullptr) {
      item.error = Error{ErrorKind::kPermanent,
                         "the event came without the bytes of its " + std::string(to_string(kind))};
      return item;
    }
    const bool as_it_is =
        kind != FileKind::kEnvironment || config_.environment_format == EnvironmentStyle::kNul;
    item.file(kind).emplace().bytes =
        as_it_is ? from->bytes
                 : make_bytes(render_environment(*from->bytes, event.environment_format,
                                                 config_.environment_format));
  }
  return item;
}

Result<void> FileSink::prepare_item(Batch& batch, Item& item) {
  auto directory = directories_.open(batch, item);
  if (!directory) return directory.error();
  item.directory = *std::move(directory);
  if (item.event().replaces) {
    const auto replaced = replacement_.replace_in_place(batch, item);
    if (!replaced) return replaced.error();
    if (*replaced) return {};
  }
  if (auto found = placement_.find_slot(batch, item); !found) return found;
  item.found_again = item.missing.empty();
  for (const FileKind kind : item.missing) {
    if (auto written = placement_.write_temporary(batch, item, kind, !batch.one_sync); !written)
      return written;
  }
  return {};
}

// POSIX lets the names of one directory reach the disk in any order, and where the metadata is the
// event is whole: so the other names become durable first.
void FileSink::put_in_place(Batch& batch) {
  const bool in_two_steps = std::ranges::any_of(batch.items, [](const Item& item) {
    return !item.error && item.missing.size() > 1 && item.missing.back() == FileKind::kMetadata;
  });
  if (!in_two_steps) return put_all_in_place(batch, Placement::Names::kAll);
  put_all_in_place(batch, Placement::Names::kContents);
  batch.sync_changed_directories();
  put_all_in_place(batch, Placement::Names::kMetadata);
}

void FileSink::put_all_in_place(Batch& batch, Placement::Names names) {
  for (Item& item : batch.items) {
    if (!item.in_progress()) continue;
    if (auto placed = placement_.put_in_place(batch, item, names); !placed)
      item.error = placed.error();
  }
}

void FileSink::remove_replaced(Batch& batch) {
  for (Item& item : batch.items) {
    if (!item.in_progress() || !item.event().replaces) continue;
    if (auto removed = replacement_.remove_replaced(batch, item); !removed) {
      item.error = removed.error();
    } else {
      ++replaced_;
    }
  }
}

void FileSink::settle(Item& item) {
  if (!item.error) {
    ++(item.found_again ? found_again_ : stored_);
    if (!item.found_again && item.slot > 1) ++suffixed_;
    item.delivery->acknowledge();
  } else if (item.error->kind() == ErrorKind::kPermanent) {
    item.delivery->reject(item.error->message());
  } else {
    item.delivery->retry(item.error->message());
  }
}

// ---- what is stored

Result<std::vector<StoredJob>> FileSink::find(std::string_view job_id) {
  auto root = root_.open_or_pass();
  if (!root) return root.error();
  ArchiveSearch search(config_, layout_, job_id, clock_);
  search.run(root->get());
  std::vector<StoredJob> jobs = search.take_jobs();
  if (jobs.empty() && search.closed_directories() > 0) {
    log_.warning("FILE_NOT_ALL_SEARCHED",
                 "This user may not read all of the archive, and the job is not in the rest",
                 {{"sink", instance_},
                  {"root", config_.root},
                  {"closed_directories", static_cast<std::uint64_t>(search.closed_directories())}});
  }
  if (jobs.empty() && search.cut_short()) {
    return Error{ErrorKind::kTransient, config_.root + ": not found among the first " +
                                            std::to_string(search.names_seen()) +
                                            " names, and the search ended there"};
  }
  return jobs;
}

std::string FileSink::status_json() const {
  return "{\"stored\":" + std::to_string(stored_) +
         ",\"found_again\":" + std::to_string(found_again_) +
         ",\"suffixed\":" + std::to_string(suffixed_) +
         ",\"replaced\":" + std::to_string(replaced_) +
         ",\"stale_temporaries_removed\":" + std::to_string(directories_.stale_removed()) + "}";
}

}  // namespace scriptorium::file

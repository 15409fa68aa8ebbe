#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "backends/catalog/sink.h"
#include "backends/file/sink.h"
#include "backends/null/sink.h"
#include "backends/stdout/sink.h"
#ifdef SCRIPTORIUM_HAS_KAFKA
#include "backends/kafka/sink.h"
#include "tests/backends/kafka/config_builder.h"
#include "tests/backends/kafka/mock_cluster.h"
#endif
#ifdef SCRIPTORIUM_HAS_ELASTICSEARCH
#include "backends/elasticsearch/sink.h"
#include "tests/backends/elasticsearch/fake_elasticsearch.h"
#endif
#include "tests/contract/sink_contract.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::test {
namespace {

class NullDestination : public SinkCase::Destination {
 public:
  std::unique_ptr<Sink> make(const PluginContext&) override {
    return std::make_unique<null::NullSink>();
  }
  std::string contents() override { return {}; }
};

// Into a file, so that nothing has to be read while the sink writes.
class StdoutDestination : public SinkCase::Destination {
 public:
  std::unique_ptr<Sink> make(const PluginContext&) override {
    return std::make_unique<stdout_sink::StdoutSink>(stdout_sink::StdoutConfig{}, fd_.get());
  }
  std::string contents() override { return directory_.read("out"); }
  bool keeps_events_apart() const override { return false; }

 private:
  TempDir directory_;
  UniqueFd fd_{
      ::open(directory_.path_to("out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
};

class FileDestination : public SinkCase::Destination {
 public:
  explicit FileDestination(file::FileConfig config) : config_(std::move(config)) {
    config_.root = directory_.path_to("archive");
  }

  std::unique_ptr<Sink> make(const PluginContext& context) override {
    auto sink = file::FileSink::create(config_, context);
    if (!sink) throw std::runtime_error(sink.error().message());
    return *std::move(sink);
  }
  std::string contents() override {
    std::vector<std::string> lines;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      const std::string path = std::filesystem::relative(entry.path(), directory_.path()).string();
      struct stat st{};
      ::lstat(entry.path().c_str(), &st);
      // Replaced by an equal file counts as changed, so the inode is part of it.
      lines.push_back(path + ' ' + std::to_string(st.st_ino) + ' ' +
                      (entry.is_regular_file() ? directory_.read(path) : ""));
    }
    std::ranges::sort(lines);
    std::string result;
    for (const std::string& line : lines) result += line + '\n';
    return result;
  }
  bool finds() const override { return true; }

 private:
  TempDir directory_;
  file::FileConfig config_;
};

file::FileConfig file_config(const std::string& layout, std::vector<file::FileKind> kinds,
                             file::SyncMode sync) {
  file::FileConfig config;
  config.layout = layout;
  config.kinds = std::move(kinds);
  config.sync = sync;
  config.acl = file::AclMode::kBestEffort;  // the temporary directory's file system may have none
  return config;
}

class CatalogDestination : public SinkCase::Destination {
 public:
  CatalogDestination() { config_.root = directory_.path_to("catalog"); }

  std::unique_ptr<Sink> make(const PluginContext& context) override {
    return std::make_unique<catalog::CatalogSink>(config_, context);
  }
  // Every event with its bytes, in the order of the store.
  std::string contents() override {
    std::string result;
    catalog::Archive archive(config_.root);
    std::string position;
    for (bool end = !directory_.exists("catalog/catalog.db"); !end;) {
      const auto page = archive.list({}, position, 1000);
      if (!page) throw std::runtime_error(page.error().message());
      for (const auto& locator : page->events) {
        const auto event = archive.fetch(*locator);
        if (!event) throw std::runtime_error(event.error().message());
        result += event_json(**event, {.exact_times = true}) + '\n';
      }
      position = page->position;
      end = page->end;
    }
    return result;
  }
  bool finds() const override { return true; }

 private:
  TempDir directory_;
  catalog::CatalogConfig config_;
};

#ifdef SCRIPTORIUM_HAS_KAFKA
// Into librdkafka's own cluster. A topic only appends; its consumers drop what has an event-id that
// they know.
class KafkaDestination : public SinkCase::Destination {
 public:
  explicit KafkaDestination(const char* format) {
    cluster_.make_topic("jobs", 3);
    options_.set("brokers", cluster_.brokers().c_str()).set("topic", "jobs").set("format", format);
  }
  std::unique_ptr<Sink> make(const PluginContext& context) override {
    auto sink = kafka::KafkaSink::create(options_.config(), context);
    if (!sink) throw std::runtime_error(sink.error().message());
    return *std::move(sink);
  }
  std::string contents() override {
    std::string result;
    for (const Consumed& message : cluster_.consume("jobs", 3)) result += message.value + '\n';
    return result;
  }
  bool keeps_events_apart() const override { return false; }

 private:
  MockCluster cluster_;
  ConfigBuilder options_;
};
#endif

#ifdef SCRIPTORIUM_HAS_ELASTICSEARCH
class ElasticsearchDestination : public SinkCase::Destination {
 public:
  std::unique_ptr<Sink> make(const PluginContext& context) override {
    elasticsearch::ElasticsearchConfig config;
    config.hosts = {server_.url()};
    config.index_name = *elasticsearch::IndexName::parse(elasticsearch::IndexName::kDefault);
    auto sink = elasticsearch::ElasticsearchSink::create(config, context);
    if (!sink) throw std::runtime_error(sink.error().message());
    return *std::move(sink);
  }
  std::string contents() override {
    std::string result;
    for (const auto& document : server_.documents())
      result += document.index + ' ' + document.id + ' ' + document.source + '\n';
    return result;
  }
  bool finds() const override { return true; }

 private:
  FakeElasticsearch server_;
};
#endif

}  // namespace

std::vector<SinkCase> sink_cases() {
  using file::FileKind;
  using file::SyncMode;
  const std::vector<FileKind> all(file::kFileKinds.begin(), file::kFileKinds.end());
  const auto file_case = [](const std::string& name, file::FileConfig config) {
    return SinkCase{name, [config] { return std::make_unique<FileDestination>(config); }};
  };
  return {
      {"Null", [] { return std::make_unique<NullDestination>(); }},
      {"Stdout", [] { return std::make_unique<StdoutDestination>(); }},
      {"Catalog", [] { return std::make_unique<CatalogDestination>(); }},
#ifdef SCRIPTORIUM_HAS_ELASTICSEARCH
      {"Elasticsearch", [] { return std::make_unique<ElasticsearchDestination>(); }},
#endif
#ifdef SCRIPTORIUM_HAS_KAFKA
      {"KafkaEvent", [] { return std::make_unique<KafkaDestination>("event"); }},
      {"KafkaSarchive", [] { return std::make_unique<KafkaDestination>("sarchive"); }},
#endif
      file_case("FileByUserAndMonth", file_config("user-month", all, SyncMode::kAuto)),
      file_case("FileSyncedOneByOne", file_config("user-month", all, SyncMode::kFile)),
      file_case("FileSyncedByBatch", file_config("sarchive-daily", all, SyncMode::kBatch)),
      file_case("FileScriptOnly", file_config("xdmod", {FileKind::kScript}, SyncMode::kAuto)),
      file_case("FileFlat",
                file_config("{job_id}.{ext}", {FileKind::kScript, FileKind::kEnvironment},
                            SyncMode::kAuto)),
  };
}

}  // namespace scriptorium::test

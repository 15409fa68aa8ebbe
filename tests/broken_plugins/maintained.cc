// Nothing is wrong with this one: a sink that can be read, checked and rewritten (unless it is
// frozen), but takes no tree of files. Option `state`: what its store is like.
#include <string>
#include <utility>

#include "core/api/maintained_sink.h"
#include "core/api/readable_sink.h"
#include "core/api/rewritable_sink.h"
#include "tests/broken_plugins/plain_sink.h"

namespace {

using scriptorium::Error;
using scriptorium::ErrorKind;
using scriptorium::Event;
using scriptorium::MaintainedSink;
using scriptorium::ReadableSink;
using scriptorium::Result;
using scriptorium::RewritableSink;

struct MaintainedConfig {
  std::string state = "intact";
};

const scriptorium::Schema<MaintainedConfig>& schema() {
  static const scriptorium::Schema<MaintainedConfig> the_schema{
      scriptorium::option("state", &MaintainedConfig::state,
                          "intact, absent, busy, interrupted, damaged, lost, ruined, frozen"),
  };
  return the_schema;
}

class Store final : public MaintainedSink, public ReadableSink, public RewritableSink {
 public:
  explicit Store(std::string state) : state_(std::move(state)) {}

  Result<Report> check(const Control& control) override {
    control.progress("reading", 1, 2);
    return report(state_ == "damaged" || state_ == "lost" || state_ == "ruined");
  }
  Result<Report> stats() override { return report(false); }
  Result<Report> rewrite(MaintainedSink::Rewrite, const Control&) override {
    return report(state_ == "lost");
  }

  Result<std::shared_ptr<const Event>> fetch(const Event&) override {
    return Error{ErrorKind::kVanished, "it keeps nothing"};
  }
  Result<Page> list(const Query&, const std::string&, std::size_t) override {
    return Page{.events = {}, .position = "", .end = true};
  }

  bool takes_directories() const override { return false; }
  Result<Summary> rewrite(const Pass& pass, Editor& editor) override {
    if (state_ == "absent") return Error{ErrorKind::kVanished, "nothing is stored yet"};
    if (!pass.directory.empty()) return Error{ErrorKind::kPermanent, "it takes no directory"};
    Summary summary;
    summary.events = 3;
    if (state_ != "damaged") return summary;
    editor.left("block 17", "cannot be read");
    summary.left["cannot be read"] = 1;
    return summary;
  }

 private:
  Result<Report> report(bool findings) const {
    if (state_ == "absent") return Error{ErrorKind::kVanished, "nothing is stored yet"};
    if (state_ == "busy") return Error{ErrorKind::kExhausted, "another process does the same"};
    Report report{.figures = {{"file_bytes", 2048}, {"jobs", 3}, {"oldest_job_time", 1700000000}}};
    report.interrupted = state_ == "interrupted";
    if (findings && state_ == "ruined") report.figures["findings"] = 5'000;  // too many to name
    if (findings) {
      report.findings.push_back(
          {.place = "block 17", .problem = "its sum is wrong", .lost = false});
      if (state_ == "lost")
        report.findings.push_back(
            {.place = "job 4711", .problem = "its script is lost", .lost = true});
    }
    return report;
  }

  const std::string state_;
};

class MaintainedSinkOfATest final : public scriptorium::broken::PlainSink {
 public:
  explicit MaintainedSinkOfATest(const MaintainedConfig& config)
      : store_(config.state), frozen_(config.state == "frozen") {}
  MaintainedSink* maintained() override { return &store_; }
  ReadableSink* readable() override { return &store_; }
  RewritableSink* rewritable() override { return frozen_ ? nullptr : &store_; }

 private:
  Store store_;
  const bool frozen_;
};

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::broken::describe<&schema, MaintainedSinkOfATest>(
        "maintained", "can be read, checked and rewritten");

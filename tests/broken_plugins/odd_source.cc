// A spool adapter that throws an int, which is not a std::exception, in the call that its option
// `at` names; with "crash" it ends the process by a segmentation fault when it parses a script with
// the word "poison". Its spool holds a folder for each job with a file "script".
#include <array>
#include <span>
#include <string>
#include <utility>

#include "tests/broken_plugins/plain_sink.h"

namespace {

using namespace scriptorium;

struct OddConfig {
  std::string at;
  std::string spool;
};

const Schema<OddConfig>& schema() {
  static const Schema<OddConfig> the_schema{
      option("at", &OddConfig::at, "the call that throws"),
      required("spool", &OddConfig::spool, "folder of the jobs")};
  return the_schema;
}

class Odd {
 public:
  explicit Odd(std::string at) : at_(std::move(at)) {}
  void operator()(std::string_view call) const {
    if (call == at_) throw 1;
  }
  bool crashes() const { return at_ == "crash"; }

 private:
  std::string at_;
};

class OddOwners : public OwnerResolver {
 public:
  explicit OddOwners(Odd odd) : odd_(std::move(odd)) {}
  std::chrono::milliseconds min_interval() const override {
    return odd_("min_interval"), std::chrono::milliseconds{100};
  }
  Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries, std::stop_token,
                                           SteadyTime) override {
    odd_("resolve");
    return std::vector<OwnerAnswer>(queries.size(),
                                    OwnerAnswer{.state = OwnerAnswer::State::kUnknown});
  }
  Result<void> check() override { return odd_("resolver_check"), Result<void>{}; }

 private:
  Odd odd_;
};

class OddNumbers : public NumberResolver {
 public:
  explicit OddNumbers(Odd odd) : odd_(std::move(odd)) {}
  Result<std::optional<std::vector<NumberUse>>> numbers(const Question&, std::stop_token,
                                                        SteadyTime) override {
    return odd_("numbers"), std::optional(std::vector<NumberUse>{});
  }

 private:
  Odd odd_;
};

class OddSource : public SpoolAdapter {
 public:
  explicit OddSource(OddConfig config) : odd_(config.at), spool_(std::move(config.spool)) {}

  std::string scheduler() const override { return odd_("scheduler"), "odd"; }
  std::string spool_root() const override { return odd_("spool_root"), spool_; }
  SpoolPath classify(std::string_view path) const override {
    odd_("classify");
    const std::size_t slash = path.find('/');
    if (slash == std::string_view::npos)
      return {.role = SpoolPath::Role::kEntryDirectory, .entry = path, .file = {}};
    return {.role = SpoolPath::Role::kEntryFile,
            .entry = path.substr(0, slash),
            .file = path.substr(slash + 1)};
  }
  Assessment assess(const SpoolEntry& entry) const override {
    odd_("assess");
    return entry.files.empty() ? Assessment{} : Assessment{.state = Assessment::State::kComplete};
  }
  Result<ParsedJob> parse(const SpoolEntry& entry) const override {
    odd_("parse");
    if (odd_.crashes() && entry.file("script")->bytes->find("poison") != std::string::npos) {
      volatile int* volatile nothing = nullptr;
      *nothing = 1;  // NOLINT(clang-analyzer-core.NullDereference): what it is for
    }
    ParsedJob parsed;
    parsed.job.id = entry.key;
    parsed.script = entry.file("script")->bytes;
    return parsed;
  }
  std::string path_of(std::string_view entry, std::string_view file) const override {
    return odd_("path_of"), SpoolAdapter::path_of(entry, file);
  }
  std::span<const std::string_view> file_names() const override {
    return odd_("file_names"), kNames;
  }
  std::unique_ptr<OwnerResolver> make_resolver() override {
    return odd_("make_resolver"), std::make_unique<OddOwners>(odd_);
  }
  Result<void> check_root(std::span<const std::string>) const override {
    return odd_("check_root"), Result<void>{};
  }
  std::optional<std::uint64_t> number_of(std::string_view entry) const override {
    odd_("number_of");
    return entry.back() - '0';
  }
  std::unique_ptr<NumberResolver> make_number_resolver() const override {
    return odd_("make_number_resolver"), std::make_unique<OddNumbers>(odd_);
  }

 private:
  static constexpr std::array<std::string_view, 1> kNames{"script"};
  Odd odd_;
  std::string spool_;
};

}  // namespace

extern "C" SCRIPTORIUM_EXPORT const scriptorium::PluginDescriptor scriptorium_plugin =
    scriptorium::broken::describe<&schema, OddSource>("odd_source",
                                                      "throws an int in the call named by `at`");

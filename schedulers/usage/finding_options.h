#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/api/kit/text_template.h"
#include "core/api/options.h"

// What a site may set of the rules: thresholds and switches in [source.NAME.findings], and its own
// pages about them. Pure.
namespace scriptorium::usage {

// A number that a site may set in [source.NAME.findings].
struct FindingParameter {
  std::string_view key;  // "cpu_low_warning_ratio"
  double value = 0;      // the default
  double least = 0, most = 1;
  std::string_view help;
};

struct FindingRuleInfo {
  std::string_view id;
  bool on = true;
  // A fact and not an estimate: also for a job that is too short or was seen in parts.
  bool always = false;
};
// All rules and parameters, in the order of the documentation.
const std::vector<FindingRuleInfo>& finding_rules();
const std::vector<FindingParameter>& finding_parameters();

// Thresholds and switches, and the site's pages.
class FindingOptions {
 public:
  FindingOptions();                        // the defaults
  double get(std::string_view key) const;  // of a key that exists
  bool on(std::string_view id) const;
  void set(std::string_view key, double value);
  void enable(std::string_view id, bool on);
  // "" unless the site has a page.
  std::string help_url(std::string_view id) const;
  void set_help_url(TextTemplate url);

 private:
  std::vector<double> values_;
  std::vector<bool> on_;
  TextTemplate help_url_;
};

// [source.NAME.findings]: parameters by key, `off = [...]` and `on = [...]` with ids. Says every
// problem.
FindingOptions read_finding_options(const Table& table, Problems& problems);

// The site's page about findings, "https://hpc.example.org/usage/{finding}", as the key help_url of
// [source.NAME] has it. Says what is wrong; then it is empty, as for "".
TextTemplate read_help_url(const Table& table, const std::string& url, Problems& problems);

}  // namespace scriptorium::usage

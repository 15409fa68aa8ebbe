#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/job_search.h"
#include "core/cli/show_text.h"
#include "core/daemon/status_answer.h"

namespace scriptorium::cli {
namespace {

using status_answer::member;

int print_raw(const StoredCapture& found, const JobName& name, const Arguments& arguments,
              Console& console, std::size_t captures) {
  const auto bytes = arguments.environment ? environment_of(found) : script_of(found);
  if (!bytes)
    return fail(console,
                std::string{"no "} + (arguments.environment ? "environment" : "script") +
                    " of this job was kept",
                kExitNoInput);
  if (captures > 1) {
    console.err << "scriptorium: there are " << captures << " captures of job " << name_text(name)
                << "; this is the newest\n";
  }
  if (!console.out_is_terminal) {
    console.out << *bytes;
    return kExitGood;
  }
  const std::string shown = terminal_text(*bytes);
  console.out << shown;
  if (shown != *bytes)
    console.err << "scriptorium: characters that a terminal would act on are shown escaped; write "
                   "to a file or a pipe to get the "
                   "bytes as they are\n";
  return kExitGood;
}

// Says why nothing of the job is shown; the exit code.
int not_found(const JobSearch& search, const OpenStores& stores, const JobName& name,
              bool has_usage, Console& console) {
  if (has_usage) {
    return fail(console,
                "no script of job " + name_text(name) + " was kept; \"scriptorium report " +
                    name_text(name) + "\" shows what it used",
                kExitNoInput);
  }
  const bool failed = search.anything_failed();
  return fail(console,
              stores.asks_service()
                  ? "there is no job " + name_text(name) + " that you may see"
                  : "job " + name_text(name) + " is neither in the journal nor in a sink" +
                        (failed ? " that could be asked" : ""),
              failed ? kExitUnavailable : kExitNoInput);
}

// Shows the jobs one after the other.
class Show {
 public:
  Show(OpenStores& stores, const Arguments& arguments, Console& console)
      : stores_(stores), arguments_(arguments), console_(console) {}

  int job(const JobName& name) {
    JobSearch search(stores_, name, said_, console_);
    auto found = search.run();
    const bool has_usage =
        std::erase_if(found, [](const StoredCapture& f) { return !is_script(f); }) > 0;
    if (found.empty() && name.of_range && !has_usage) {
      failed_ = failed_ || search.anything_failed();
      return kExitGood;
    }
    if (found.empty()) return not_found(search, stores_, name, has_usage, console_);
    any_ = true;
    if (arguments_.raw) return print_raw(found.front(), name, arguments_, console_, found.size());
    for (const StoredCapture& capture : found) {
      if (arguments_.json) {
        all_.push_back(show_json(capture, search.record_of(capture)));
      } else {
        print(capture, search);
      }
    }
    return kExitGood;
  }

  int end(int code) {
    if (!any_ && code == kExitGood)
      return fail(console_, "there is no such job", failed_ ? kExitUnavailable : kExitNoInput);
    if (arguments_.json && any_) {
      console_.out << printable_json(all_.dump(2, ' ', false, Json::error_handler_t::replace))
                   << "\n";
    }
    return code;
  }

 private:
  void print(const StoredCapture& capture, JobSearch& search) {
    const Searchable::Record* record = search.record_of(capture);
    std::size_t components = 0;
    if (const auto leader =
            string_of(member(member(member(capture.event, "job"), "het"), "job_id"))) {
      if (!components_.contains(*leader))
        components_[*leader] =
            JobSearch(stores_, {*leader, {}}, said_, console_).count_components(*leader);
      components = components_[*leader];
    }
    console_.out << (printed_++ == 0 ? "" : "\n")
                 << show_text(capture, record, arguments_, console_, components);
  }

  OpenStores& stores_;
  const Arguments& arguments_;
  Console& console_;
  Json all_ = Json::array();
  std::map<std::string, std::size_t> components_;
  std::set<std::string> said_;  // problems that were printed
  std::size_t printed_ = 0;
  bool failed_ = false;
  bool any_ = false;
};

}  // namespace

int show_command(const Arguments& arguments, Console& console) {
  const auto names = job_names(arguments.jobs, arguments.cluster);
  if (!names) return fail(console, names.error().message(), kExitUsage);
  if (arguments.raw && names->size() > 1) return fail(console, "--raw takes one job", kExitUsage);
  int code = kExitGood;
  if (!become_daemon_user_or_say(arguments, console, code)) return code;
  Problems problems;
  Setup setup = load_setup(arguments.config_file, problems);
  // A user without access to a plugin's secret or folder may still read his own files, so every
  // place that can be searched is searched.
  const bool incomplete = print_problems(problems, console);
  if (incomplete && setup.sinks.empty()) return kExitConfig;
  OpenStores stores = open_stores(std::move(setup), "", console);
  if (incomplete) stores.mark_incomplete();
  Show show(stores, arguments, console);
  for (const JobName& name : *names) {
    const int one = show.job(name);
    if (one != kExitGood) code = one;
  }
  return show.end(code);
}

}  // namespace scriptorium::cli

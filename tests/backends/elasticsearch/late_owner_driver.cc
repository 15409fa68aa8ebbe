// One half of the class LateOwners in tests/system/search_suite.py, which starts the server and
// looks at its documents.
//   elasticsearch_late_owner_driver JOB STEPS OPTION=VALUE...
// Delivers the events of one job to the sink, each alone and again until it is settled for good.
// STEPS, with commas between:
//   first   the event as it went out while its owner was unknown
//   owned   the one that replaces it when he is known
//   bare    the same without the bytes of its files
// OPTION=VALUE as in a [sink.search]. Prints one JSON object: the events (as `event_json()` has
// them), how each step ended, the sink's status and the ids of what it logged.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "backends/elasticsearch/sink.h"
#include "core/base/time.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"

namespace {

using namespace scriptorium;
using Json = nlohmann::ordered_json;
using namespace std::string_literals;

constexpr std::uint32_t kMostAttempts = 5;

Value option(const std::string& name, const std::string& text) {
  const auto value = [](auto data) { return Value{.data = std::move(data), .position = {}}; };
  if (name == "hosts") return value(std::vector<Value>{value(text)});
  if (text == "true" || text == "false") return value(text == "true");
  return value(text);
}

int run(const std::string& job, const std::string& steps, const std::vector<std::string>& options) {
  Table table;
  table.path = "sink.search";
  for (const std::string& text : options) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    table.entries.push_back({name, option(name, text.substr(equals + 1))});
  }
  Problems problems;
  auto config = elasticsearch::parse_config(table, problems);
  for (const Problem& problem : problems.list())
    std::fprintf(stderr, "%s\n", problem.text().c_str());
  if (!problems.empty()) return 64;

  test::RecordingLogger log;
  const PluginContext context{
      .name = "search", .cluster = "lab", .log = log, .clock = system_clock()};
  auto sink = elasticsearch::ElasticsearchSink::create(std::move(config), context);
  if (!sink || !(*sink)->start()) return 1;

  // Not UTF-8, so that the document has script.raw too.
  const Event first = test::make_unverified_event(
      job, "#!/bin/bash\nmodule load GROMACS/2023.1\n# caf\xe9\nsrun gmx\n"s);
  const Event owned = test::make_owned_event(first);
  std::map<std::string, std::shared_ptr<const Event>> events;
  events["first"] = std::make_shared<const Event>(first);
  events["owned"] = std::make_shared<const Event>(owned);
  events["bare"] = std::make_shared<const Event>(test::without_bytes(owned));

  Json result = Json::object();
  for (const auto& [name, event] : events) result["events"][name] = Json::parse(event_json(*event));
  result["steps"] = Json::array();
  test::Outbox outbox;
  for (std::size_t at = 0; at < steps.size();) {
    const std::size_t comma = std::min(steps.find(',', at), steps.size());
    const std::string step = steps.substr(at, comma - at);
    at = comma + 1;
    std::uint32_t attempt = 0;
    do {
      (*sink)->deliver(outbox.batch({events.at(step)}, ++attempt));
      if (!outbox.wait_all_settled(std::chrono::minutes(5))) return 1;
    } while (outbox.outcome(job) == Outcome::kRetry && attempt < kMostAttempts);
    const bool acknowledged = outbox.outcome(job) == Outcome::kAcknowledged;
    result["steps"].push_back({{"step", step},
                               {"acknowledged", acknowledged},
                               {"attempts", attempt},
                               {"reason", outbox.reason(job)}});
  }
  result["status"] = Json::parse((*sink)->status_json());
  (*sink)->stop(system_clock().steady() + std::chrono::seconds(5));
  result["logged"] = Json::array();
  for (const auto& message : log.messages()) result["logged"].push_back(message.id);
  std::printf("%s\n", result.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) return 64;
  return run(arguments[0], arguments[1], {arguments.begin() + 2, arguments.end()});
}

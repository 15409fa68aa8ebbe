#include "core/query/answer_json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/query/job_fields.h"

namespace scriptorium::query {
namespace {

using Json = nlohmann::ordered_json;

Json line_json(const Searchable::Line& line) {
  Json marks = Json::array();
  for (const auto& [begin, end] : line.marks) marks.push_back({begin, end});
  return {{"part", line.part == JobPart::kScript ? "script" : "environment"},
          {"number", line.number},
          {"text", to_utf8_lossy(line.text)},
          {"marks", std::move(marks)}};
}

Json facet_json(const Searchable::Facet& facet) {
  Json values = Json::array();
  for (const auto& value : facet.values)
    values.push_back({{"value", value.value}, {"jobs", value.jobs}});
  Json json{{"field", query_field_name(facet.field)}, {"exact", facet.exact}};
  if (!facet.exact) json["over"] = facet.over;
  json["values"] = std::move(values);
  return json;
}

}  // namespace

Json count_json(const Searchable::Count& count) {
  return {{"jobs", count.jobs}, {"at_least", count.at_least}};
}

Json hit_json(const Searchable::Hit& hit) {
  Json json{{"job", job_json(hit.job)}};
  for (const Searchable::Line& line : hit.lines) json["lines"].push_back(line_json(line));
  return json;
}

Json later_json(const Searchable::Record& record) {
  Json list = Json::array();
  for (const auto& event : record.later)
    list.push_back(Json::parse(event_json(*event), nullptr, false));
  return list;
}

Json record_json(const Searchable::Record& record) {
  Json json{{"job", job_json(record.job)}};
  std::vector<std::string> problems = record.problems;
  if (record.event != nullptr) {
    const bool fits = record.event->bytes_size() <= kMostJsonTextBytes;
    if (!fits) problems.emplace_back("its texts are too large for JSON");
    json["event"] =
        Json::parse(event_json(*record.event, {.script_text = fits, .environment = fits}));
  }
  json["later"] = later_json(record);
  if (!problems.empty()) json["problems"] = problems;
  return json;
}

Json answer_json(const Searchable::Answer& answer, const std::string& store) {
  Json json{{"sink", store}, {"complete", answer.finished && answer.problems.empty()}};
  if (answer.searched_back_to) {
    json["searched_back_to"] =
        format_rfc3339(*answer.searched_back_to, TimePrecision::kMilliseconds);
  }
  if (!answer.next.empty()) json["next"] = answer.next;
  if (answer.count) json["count"] = count_json(*answer.count);
  for (const Searchable::Facet& facet : answer.facets) json["facets"].push_back(facet_json(facet));
  if (!answer.problems.empty()) json["problems"] = answer.problems;
  return json;
}

}  // namespace scriptorium::query

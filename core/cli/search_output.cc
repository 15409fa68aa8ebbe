#include "core/cli/search_output.h"

#include <nlohmann/json.hpp>

#include "core/base/text.h"
#include "core/cli/fitted_table.h"
#include "core/cli/job_text.h"
#include "core/cli/search_request.h"
#include "core/query/answer_json.h"
#include "core/query/job_fields.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string json_text(const Json& json) {
  return printable_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string sum_text(const Searchable::Count& count) {
  return (count.at_least ? "at least " : "") + std::to_string(count.jobs) + "\n";
}

// ---- for people

class TableOutput : public SearchOutput {
 public:
  TableOutput(std::string cluster, const Console& console)
      : cluster_(std::move(cluster)), console_(console) {}

  std::string page(const Searchable::Answer& answer) override {
    std::vector<FittedTable::Row> rows;
    for (const Searchable::Hit& hit : answer.hits) rows.push_back(row_of(hit));
    return rows.empty() ? std::string{} : table_.portion(rows, console_);
  }

  std::string end(const Searchable::Answer& last, const query::Store&,
                  const std::optional<Searchable::Count>&) override {
    std::string text;
    for (const Searchable::Facet& facet : last.facets)
      text += (text.empty() ? "" : "\n") + facet_text(facet, console_);
    if (last.count) text += sum_text(*last.count);
    return text;
  }

 private:
  FittedTable::Row row_of(const Searchable::Hit& hit) const {
    const JobRow& job = hit.job;
    FittedTable::Row row{{{local_time(job.time)},
                          {printable(job.id), Paint::kStrong},
                          {user_text(job)},
                          {shown(job.name)},
                          {state_text(job), state_paint(job)},
                          {elapsed_text(job)},
                          {shown(job.account)},
                          {shown(job.partition)},
                          {job.cluster == cluster_ ? std::string{} : printable(job.cluster)}},
                         {}};
    for (const Searchable::Line& line : hit.lines) row.below.push_back(hit_line(line, console_));
    return row;
  }

  std::string cluster_;
  const Console& console_;
  FittedTable table_{{{.title = "SUBMITTED"},
                      {.title = "JOB"},
                      {.title = "USER", .least = 8},
                      {.title = "NAME", .least = 10},
                      {.title = "STATE", .least = 9, .rank = 1},
                      {.title = "ELAPSED", .right = true, .rank = 4},
                      {.title = "ACCOUNT", .least = 8, .rank = 2},
                      {.title = "PARTITION", .least = 6, .rank = 3},
                      {.title = "CLUSTER", .least = 6, .rank = 1}}};
};

// ---- for programs

class IdOutput : public SearchOutput {
 public:
  IdOutput(std::string cluster, bool nul) : cluster_(std::move(cluster)), nul_(nul) {}

  std::string page(const Searchable::Answer& answer) override {
    std::string text;
    for (const Searchable::Hit& hit : answer.hits) {
      const std::string id =
          (hit.job.cluster == cluster_ ? "" : hit.job.cluster + "/") + hit.job.id;
      text += nul_ ? id + '\0' : printable(id) + "\n";
    }
    return text;
  }
  std::string end(const Searchable::Answer&, const query::Store&,
                  const std::optional<Searchable::Count>&) override {
    return {};
  }

 private:
  std::string cluster_;
  bool nul_;
};

class CsvOutput : public SearchOutput {
 public:
  explicit CsvOutput(bool with_head) : head_(with_head) {}

  std::string page(const Searchable::Answer& answer) override {
    std::string text = head_ ? query::csv_line(query::job_columns()) : std::string{};
    head_ = false;
    for (const Searchable::Hit& hit : answer.hits)
      text += query::csv_line(query::job_cells(hit.job));
    return text;
  }
  std::string end(const Searchable::Answer& last, const query::Store&,
                  const std::optional<Searchable::Count>&) override {
    std::string text;
    for (const Searchable::Facet& facet : last.facets) {
      text += query::csv_line({std::string(query_field_name(facet.field)), "jobs"});
      for (const auto& value : facet.values)
        text += query::csv_line({value.value, std::to_string(value.jobs)});
    }
    return text;
  }

 private:
  bool head_;
};

// One object; each hit is one line of it, so that an answer of any length needs little memory.
class JsonOutput : public SearchOutput {
 public:
  explicit JsonOutput(std::string query) : query_(std::move(query)) {}

  std::string page(const Searchable::Answer& answer) override {
    std::string text = begin();
    for (const Searchable::Hit& hit : answer.hits) {
      text += (any_ ? ",\n  " : "\n  ") + json_text(query::hit_json(hit));
      any_ = true;
    }
    return text;
  }

  std::string end(const Searchable::Answer& last, const query::Store& store,
                  const std::optional<Searchable::Count>& end_unknown) override {
    Json rest = query::answer_json(last, store.name);
    if (end_unknown) rest["end_unknown"] = query::count_json(*end_unknown);
    return begin() + (any_ ? "\n " : "") + "],\n " + json_text(rest).substr(1) + "\n";
  }

 private:
  std::string begin() {
    if (begun_) return {};
    begun_ = true;
    return "{\"query\": " + json_text(Json(query_)) + ",\n \"hits\": [";
  }

  std::string query_;
  bool begun_ = false;
  bool any_ = false;
};

}  // namespace

std::string facet_text(const Searchable::Facet& facet, const Console& console) {
  std::string title(query_field_name(facet.field));
  for (char& c : title) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  FittedTable table({{.title = std::move(title), .least = 10}, {.title = "JOBS", .right = true}});
  std::vector<FittedTable::Row> rows;
  for (const auto& value : facet.values)
    rows.push_back({{{printable(value.value)}, {std::to_string(value.jobs)}}, {}});
  std::string text = table.portion(rows, console);
  if (!facet.exact)
    text += "  of the newest " + std::to_string(facet.over) + " matches; --exact counts all\n";
  return text;
}

std::unique_ptr<SearchOutput> make_search_output(const Arguments& arguments,
                                                 const std::string& cluster,
                                                 const Console& console) {
  if (arguments.json) return std::make_unique<JsonOutput>(query_text(arguments));
  if (arguments.csv) return std::make_unique<CsvOutput>(arguments.facets.empty());
  if (arguments.ids || arguments.nul) return std::make_unique<IdOutput>(cluster, arguments.nul);
  return std::make_unique<TableOutput>(cluster, console);
}

}  // namespace scriptorium::cli

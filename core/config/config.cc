#include "core/config/config.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/file.h"
#include "core/base/text.h"
#include "core/config/config_file.h"
#include "core/config/options.h"
#include "core/config/toml_reader.h"

namespace scriptorium {
namespace {

std::vector<std::string> names_of(const std::vector<OptionInfo>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const OptionInfo& o : options) names.push_back(o.name);
  return names;
}

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr const char* kReport = "report";  // [report] and [report.mail]
constexpr const char* kServe = "serve";

std::string place(const Position& position) {
  return position.file + ":" + std::to_string(position.line);
}

std::string suggest(std::string_view key, const std::vector<std::string>& names) {
  return key.size() > 100 ? std::string{} : did_you_mean(key, names).value_or("");
}

// Merges the files and checks core's own options.
class Merger {
 public:
  explicit Merger(Problems& problems) : problems_(problems) {}

  void add_main(const TomlText& text) {
    check_top(text.table, false);
    config_.core = core_schema().parse(text.table, problems_);
    if (const Table* table = table_at(text.table, kReport)) {
      config_.report = report_schema().parse(*table, problems_);
      check_unknown_keys(*table, report_options(), problems_);
    }
    if (const Table* table = table_at(text.table, kServe)) {
      config_.serve = serve_schema().parse(*table, problems_);
      check_unknown_keys(*table, serve_options(), problems_);
    }
    add_instances(text.table);
    damaged_ = damaged_ || text.damaged;
  }

  void add_plugin_file(const TomlText& text, const std::string& main_file) {
    main_file_ = main_file;
    check_top(text.table, true);
    add_instances(text.table);
    damaged_ = damaged_ || text.damaged;
  }

  void add_file(const std::string& file) { config_.files.push_back(file); }
  // A file could not be read; options that seem to be missing may be in it.
  void damage() { damaged_ = true; }

  Config finish(const std::string& main_file) {
    if (!damaged_) {
      if (sources_.empty()) {
        problems_.add({.position = {main_file, 0},
                       .key = "source",
                       .problem = "no source is configured, so nothing would be captured; write a "
                                  "table [source.NAME] with the "
                                  "options of a plugin, here or "
                                  "in a file of plugins.d beside this one (\"scriptorium plugins\" "
                                  "lists the plugins)"});
      }
      if (sinks_.empty()) {
        problems_.add({.position = {main_file, 0},
                       .key = "sink",
                       .problem = "no sink is configured, so nothing would be delivered; write a "
                                  "table [sink.NAME] with the "
                                  "options of a plugin, here or in "
                                  "a file of plugins.d beside this one (\"scriptorium plugins\" "
                                  "lists the plugins)"});
      }
    }
    problems_.sort();
    return std::move(config_);
  }

 private:
  void check_top(const Table& table, bool plugin_file) {
    static const std::vector<std::string> core = names_of(core_options());
    static const std::vector<std::string> source = names_of(source_options());
    static const std::vector<std::string> sink = names_of(sink_options());
    for (const TableEntry& entry : table.entries) {
      const std::string& key = entry.key;
      const bool is_of_main = key == kReport || key == kServe;
      if (key == "source" || key == "sink" || (is_of_main && !plugin_file)) continue;
      if (has(core, key)) {
        if (plugin_file) {
          add(table, entry,
              "belongs in " + main_file_ +
                  "; a file of plugins.d holds [source.NAME] and [sink.NAME] tables only");
        }
        continue;
      }
      const bool is_table =
          std::holds_alternative<Table>(entry.value.data) || is_list_of_tables(entry.value);
      if (!is_table && (plugin_file || has(source, key) || has(sink, key))) {
        const char* where = has(source, key) == has(sink, key)
                                ? "[source.NAME] or [sink.NAME]"
                                : (has(source, key) ? "[source.NAME]" : "[sink.NAME]");
        add(table, entry,
            std::string("unknown key; a plugin's options belong below its ") + where + " line");
        continue;
      }
      std::vector<std::string> candidates = {"source", "sink"};
      if (!plugin_file) candidates.insert(candidates.end(), {kReport, kServe});
      if (!is_table && !plugin_file) candidates.insert(candidates.end(), core.begin(), core.end());
      std::string nearest = suggest(key, candidates);
      std::string allowed;
      if (nearest.empty() && is_table)
        allowed =
            std::string("[source.NAME], [sink.NAME]") + (plugin_file ? "" : ", [report], [serve]");
      add(table, entry, is_table ? "unknown table" : "unknown key", std::move(nearest),
          std::move(allowed));
    }
  }

  // Null if it is absent, or something else.
  const Table* table_at(const Table& top, const char* name) {
    const Value* value = top.find(name);
    if (value == nullptr) return nullptr;
    const auto* table = std::get_if<Table>(&value->data);
    if (table == nullptr) {
      problems_.add(top, name,
                    std::string("wrong type; write its options below a line [") + name + "]");
    }
    return table;
  }

  void add_instances(const Table& top) {
    for (const TableEntry& entry : top.entries) {
      if (entry.key == "source")
        each_instance(top, entry, sources_, [&](const std::string& name, const Table& table) {
          SourceInstance made;
          fill(made, name, table, source_schema());
          config_.sources.push_back(std::move(made));
        });
      if (entry.key == "sink")
        each_instance(top, entry, sinks_, [&](const std::string& name, const Table& table) {
          SinkInstance made;
          fill(made, name, table, sink_schema());
          config_.sinks.push_back(std::move(made));
        });
    }
  }

  template <typename Instance, typename Common>
  void fill(Instance& made, const std::string& name, const Table& table,
            const Schema<Common>& schema) {
    made.name = name;
    made.table = table;
    made.common = schema.parse(table, problems_);
    if (made.common.plugin.empty()) made.common.plugin = name;
  }

  template <typename F>
  void each_instance(const Table& top, const TableEntry& kind,
                     std::map<std::string, Position>& first_positions, F make) {
    const auto* tables = std::get_if<Table>(&kind.value.data);
    if (tables == nullptr) {
      if (is_list_of_tables(kind.value)) {
        add(top, kind,
            "has no name; write [" + kind.key + ".NAME] instead of [[" + kind.key + "]]");
      } else {
        add(top, kind, "wrong type; write [" + kind.key + ".NAME] and its options below");
      }
      damaged_ = true;
      return;
    }
    for (const TableEntry& entry : tables->entries) {
      const auto* table = std::get_if<Table>(&entry.value.data);
      if (table == nullptr) {
        if (is_list_of_tables(entry.value)) {
          add(*tables, entry,
              "is defined as a list; write [" + kind.key + ".NAME] with single brackets");
        } else {
          add(*tables, entry, "wrong type; options belong below a line [" + kind.key + ".NAME]");
        }
        damaged_ = true;  // a table was intended
        continue;
      }
      const auto [before, fresh] = first_positions.emplace(entry.key, table->position);
      if (!fresh) {
        problems_.add(*tables, entry.key, "is defined twice; first at " + place(before->second));
        continue;
      }
      if (!is_instance_name(entry.key))
        add(*tables, entry, "cannot be the name of an instance", {}, kInstanceNameRule);
      make(entry.key, *table);
    }
  }

  static bool is_list_of_tables(const Value& value) {
    const auto* list = std::get_if<std::vector<Value>>(&value.data);
    return list != nullptr && !list->empty() && std::holds_alternative<Table>(list->front().data);
  }

  // Without "given": the value of a wrong key may be anything, even a password.
  void add(const Table& table, const TableEntry& entry, std::string problem,
           std::string nearest = {}, std::string allowed = {}) {
    Problems named;
    named.add(table, entry.key, std::move(problem), std::move(allowed));
    Problem made = named.list().front();
    made.given.clear();
    made.did_you_mean = std::move(nearest);
    problems_.add(std::move(made));
  }

  Problems& problems_;
  Config config_;
  std::map<std::string, Position> sources_;
  std::map<std::string, Position> sinks_;
  std::string main_file_;
  bool damaged_ = false;
};

}  // namespace

Config load_config(const std::string& file, Problems& problems) {
  Merger merger(problems);
  const bool exists = stat_path(file).has_value();
  if (auto text = read_config_file(
          file, exists ? "" : "; write the configuration there, or name another file with --config",
          problems)) {
    merger.add_file(file);
    merger.add_main(read_toml(*text, file, problems));
  } else {
    merger.damage();
    if (!exists) return merger.finish(file);
  }
  const std::size_t slash = file.rfind('/');
  const std::string folder =
      (slash == std::string::npos ? std::string{} : file.substr(0, slash + 1)) + "plugins.d";
  bool complete = true;
  for (const std::string& name : toml_files(folder, problems, complete)) {
    if (auto text = read_config_file(name, "", problems)) {
      merger.add_file(name);
      merger.add_plugin_file(read_toml(*text, name, problems), file);
    } else {
      merger.damage();
    }
  }
  if (!complete) merger.damage();
  return merger.finish(file);
}

Config parse_config(std::string_view text, const std::string& name, Problems& problems) {
  Merger merger(problems);
  merger.add_file(name);
  if (text.size() > kMostConfigBytes) {
    problems.add({.position = {name, 0},
                  .problem = "is larger than " + format_bytes(kMostConfigBytes) +
                             ", which no configuration needs"});
    merger.damage();
  } else {
    merger.add_main(read_toml(text, name, problems));
  }
  return merger.finish(name);
}

void check_unknown_keys(const Table& table, const std::vector<OptionInfo>& known,
                        Problems& problems) {
  const std::vector<std::string> names = names_of(known);
  static const std::vector<std::string> core = names_of(core_options());
  for (const TableEntry& entry : table.entries) {
    if (has(names, entry.key)) continue;
    Problems
        named;  // for key and position; without "given": the value may be anything, even a password
    named.add(table, entry.key, "unknown key");
    Problem problem = named.list().front();
    problem.given.clear();
    if (has(core, entry.key)) {
      problem.problem +=
          "; it is one of core's and belongs above the first [table] of scriptorium.toml";
    } else {
      // A secret belongs in a file that the configuration names, under a key that edit distance
      // would not find.
      const std::string in_file = entry.key + "_file";
      problem.did_you_mean = has(names, in_file) ? in_file : suggest(entry.key, names);
    }
    problems.add(std::move(problem));
  }
}

}  // namespace scriptorium

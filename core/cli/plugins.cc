#include <cctype>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/config/config.h"
#include "core/plugin/loader.h"

namespace scriptorium::cli {
namespace {

struct OptionGroup {
  std::string title;
  std::vector<OptionInfo> options;
};

// The subject of a description: a plugin, or core itself.
struct Description {
  std::string name;
  std::string kind;
  std::string summary;
  std::vector<OptionGroup> groups;
};

const char* kind_text(PluginKind kind) { return kind == PluginKind::kSink ? "sink" : "source"; }

std::vector<OptionInfo> options_of(const LoadedPlugin& plugin) {
  return plugin.descriptor->options();
}

Description describe(const LoadedPlugin& plugin) {
  const bool sink = plugin.descriptor->kind == PluginKind::kSink;
  const std::string table = std::string{"["} + (sink ? "sink" : "source") + ".NAME]";
  return {plugin.descriptor->name,
          kind_text(plugin.descriptor->kind),
          plugin.descriptor->summary,
          {{"Options of " + table + " with plugin = \"" + plugin.descriptor->name + "\"",
            options_of(plugin)},
           {sink ? "Options that every sink takes" : "Options that every source takes",
            sink ? sink_options() : source_options()}}};
}

Description describe_core() {
  return {"core",
          "no plugin",
          "what belongs to no plugin",
          {{"Options at the top of scriptorium.toml", core_options()},
           {"Options of [report] in scriptorium.toml", report_options()},
           {"Options of [report.mail] in scriptorium.toml", mail_options()},
           {"Options of [serve] in scriptorium.toml", serve_options()},
           {"Options that every [source.NAME] takes", source_options()},
           {"Options that every [sink.NAME] takes", sink_options()}}};
}

std::string default_of(const OptionInfo& option) {
  if (option.required) return "required";
  return option.default_value.empty() ? "no default" : "default " + option.default_value;
}

// The allowed values, without those that the type lists already.
std::string allowed_of(const OptionInfo& option) {
  return option.type.find('|') == std::string::npos ? option.allowed : std::string{};
}

std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

// ---- reference page

// A cell of a Markdown table: one line, with bars escaped.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}
std::string code(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string markdown(const Description& what) {
  std::string text = "<!-- Made by `scriptorium plugins " + what.name +
                     " --markdown`; do not edit. -->\n# " + what.name +
                     (what.name == "core" ? "" : " (" + what.kind + ")") + "\n\n" +
                     sentence(what.summary) + "\n";
  for (const OptionGroup& group : what.groups) {
    text += "\n## " + group.title + "\n\n";
    if (group.options.empty()) {
      text += "None.\n";
      continue;
    }
    text += "| option | type | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
    for (const OptionInfo& o : group.options) {
      const std::string standard = o.required ? "required" : code(o.default_value);
      text += "| `" + o.name + "` | " + cell(o.type) + " | " + standard + " | " +
              cell(allowed_of(o)) + " | " + cell(o.help) + (o.secret ? " Never printed." : "") +
              " |\n";
    }
  }
  return text;
}

// ---- terminal output

std::string for_people(const Description& what, const std::string& file, const Console& console) {
  std::string text = console.bold(what.name) + ": " + what.summary + " (" + what.kind +
                     (file.empty() ? "" : ", " + file) + ")\n";
  for (const OptionGroup& group : what.groups) {
    text += "\n" + group.title + ":\n";
    if (group.options.empty()) text += "  none\n";
    for (const OptionInfo& o : group.options) {
      text += "  " + console.bold(o.name) + "  " + o.type + "; " + default_of(o);
      if (const std::string allowed = allowed_of(o); !allowed.empty())
        text += "; allowed: " + allowed;
      text += "\n      " + o.help + "\n";
    }
  }
  return text;
}

// The directories to search. `plugins` must work without a configuration.
std::vector<std::string> directories(const Arguments& arguments, Console& console) {
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  if (arguments.config_given && config.core.cluster.empty()) print_problems(problems, console);
  return plugin_directories(config.core.plugin_dirs);
}

int list_all(PluginLoader& loader, const Console& console) {
  TextTable table({"NAME", "KIND", "STATE", "SUMMARY", "FILE"});
  const auto listed = loader.list();
  for (const PluginLoader::Listed& entry : listed) {
    if (entry.plugin) {
      table.add({entry.name, kind_text(entry.plugin->descriptor->kind), console.green("loadable"),
                 printable(entry.plugin->descriptor->summary), entry.file});
    } else {
      table.add(
          {printable(entry.name), "?", console.red("not loadable"), "", printable(entry.file)});
      table.note(entry.plugin.error().message());
    }
  }
  if (!listed.empty()) console.out << table.text(console);
  if (listed.empty()) {
    console.out << "no plugins; looked in:\n";
    for (const std::string& directory : loader.directories())
      console.out << "  " << directory << "\n";
  }
  return kExitGood;
}

}  // namespace

int plugins_command(const Arguments& arguments, Console& console) try {
  PluginLoader loader(directories(arguments, console));
  if (arguments.name.empty()) {
    if (arguments.markdown) return fail(console, "plugins --markdown: NAME is missing", kExitUsage);
    return list_all(loader, console);
  }
  std::string file;
  Description what;
  if (arguments.name == "core") {
    what = describe_core();
  } else {
    const auto plugin = loader.load(arguments.name);
    if (!plugin) return fail(console, plugin.error().message(), kExitUnavailable);
    file = plugin->file;
    what = describe(*plugin);
  }
  console.out << (arguments.markdown ? markdown(what) : for_people(what, file, console));
  return kExitGood;
} catch (...) {
  return fail(console, "the plugin throws (" + thrown_text() + "); report it to its author",
              kExitUnavailable);
}

}  // namespace scriptorium::cli

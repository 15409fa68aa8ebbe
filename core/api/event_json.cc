#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/api/event.h"
#include "core/api/kit/text_variables.h"
#include "core/base/json_text.h"
#include "core/base/text.h"

// Event to JSON; event_from_json.cc is the inverse. The shape is docs/schema/event-1.schema.json.
//
// Every delivery of an event to every sink passes through here, so the text is written directly,
// without building a tree in memory; only `extra_json` is parsed.
// tests/core/api/event/event_json_oracle.h does the same with a tree; both must produce identical
// bytes.
namespace scriptorium {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEventSchema = "scriptorium.event/1";

void note_lossy(std::vector<std::string>& list, const char* where) {
  if (std::find(list.begin(), list.end(), where) == list.end()) list.emplace_back(where);
}

// Writes JSON text. The caller adds members and items in order; the writer adds commas, line ends
// and indentation.
class Text {
 public:
  explicit Text(int indent) : indent_(indent) {}

  void reserve(std::size_t size) { out_.reserve(size); }
  std::string take() { return std::move(out_); }

  void open(char bracket) {
    out_ += bracket;
    ++depth_;
    empty_ = true;
  }
  void close(char bracket) {
    --depth_;
    if (!empty_) new_line();
    out_ += bracket;
    empty_ = false;
  }
  void next_item() {
    if (!empty_) out_ += ',';
    empty_ = false;
    new_line();
  }
  // `key` must be UTF-8, like every text here.
  void key(std::string_view key) {
    next_item();
    string(key);
    colon();
  }
  // For our own keys, which need no escaping.
  void plain_key(std::string_view key) {
    next_item();
    out_ += '"';
    out_ += key;
    out_ += '"';
    colon();
  }
  void string(std::string_view text) { append_json_string(text, out_); }
  void number(std::uint64_t number) {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    out_.append(digits.data(), end);
  }
  void boolean(bool value) { out_ += value ? "true" : "false"; }
  void raw(std::string_view json) { out_ += json; }

 private:
  void colon() { out_ += indent_ < 0 ? ":" : ": "; }
  void new_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_) * depth_, ' ');
  }

  std::string out_;
  int indent_;
  std::size_t depth_ = 0;
  bool empty_ = true;  // the open object or list is still empty
};

class Writer {
 public:
  Writer(const Event& event, const JsonOptions& options)
      : event_(event), options_(options), text_(options.indent), lossy_(event.lossy) {
    if (!event_.extra_json.empty()) extra_ = Json::parse(event_.extra_json, nullptr, false);
  }

  std::string write() {
    text_.reserve(likely_size());
    open(extra_.is_object() ? &extra_ : nullptr);
    add_plain("schema", kEventSchema);
    add_unchecked("id", event_.id);
    add_unchecked("kind", event_.kind);
    add_time("time", event_.time, TimePrecision::kMilliseconds);
    add_time("captured_at", event_.captured_at, TimePrecision::kMicroseconds);
    add_unchecked("capture", event_.capture);
    add_boolean("complete", event_.complete);
    add_text("cluster", "cluster", event_.cluster);
    add_text("scheduler", "scheduler", event_.scheduler);
    open("host");
    add_text("name", "host.name", event_.host);
    close();
    job();
    user();
    if (event_.script) script();
    environment();
    files();
    list("parts", "parts", event_.parts);
    redactions();
    list("problems", "problems", event_.problems);
    if (event_.supersedes) add_unchecked("supersedes", *event_.supersedes);
    if (event_.replaces) add_unchecked("replaces", *event_.replaces);
    extras();
    if (!lossy_.empty() && !lossy_written_) add_unchecked("lossy", lossy_);
    text_.close('}');
    return text_.take();
  }

 private:
  // An open object, and the corresponding object of extra_json.
  struct Level {
    const Json* extra = nullptr;
    std::vector<std::string_view>
        keys;  // keys the event itself sets; used only if there is an extra
  };

  std::size_t likely_size() const {
    std::size_t size = 1024 + event_.extra_json.size() + event_.files.size() * 128;
    for (const EventFile& file : event_.files) {
      const bool wanted = (options_.script_text && file.name == "script") ||
                          (options_.environment && file.name == "environment");
      if (wanted && file.bytes != nullptr) size += file.bytes->size() + file.bytes->size() / 8;
    }
    return size;
  }

  // ---- objects, with those of extra_json merged into them
  void open(const Json* extra) {
    text_.open('{');
    levels_.push_back({.extra = extra, .keys = {}});
  }
  void open_plain(const char* name) {
    key(name);
    open(static_cast<const Json*>(nullptr));
  }
  void open(const char* name) {
    const Json* extra = nullptr;
    if (levels_.back().extra != nullptr) {
      const auto found = levels_.back().extra->find(name);
      if (found != levels_.back().extra->end() && found->is_object()) extra = &*found;
    }
    key(name);
    open(extra);
  }
  void key(const char* name) {
    reserve(name);
    text_.plain_key(name);
  }
  // Marks a key that must not come from extra_json, whether or not it is written.
  void reserve(const char* name) {
    if (levels_.back().extra != nullptr) levels_.back().keys.emplace_back(name);
  }
  void close() {
    extras();
    text_.close('}');
    levels_.pop_back();
  }
  // extra_json cannot replace a member of schema 1: a source cannot change what an event is.
  void extras() {
    const Level& level = levels_.back();
    if (level.extra == nullptr) return;
    for (const auto& [name, value] : level.extra->items()) {
      if (std::find(level.keys.begin(), level.keys.end(), name) != level.keys.end()) continue;
      const bool lossy = levels_.size() == 1 && name == "lossy" && !lossy_.empty();
      text_.key(name);
      if (lossy) {
        unchecked(lossy_);
        lossy_written_ = true;
      } else {
        tree(value);
      }
    }
  }
  void tree(const Json& json) {
    if (json.is_object()) {
      text_.open('{');
      for (const auto& [name, value] : json.items()) {
        text_.key(name);
        tree(value);
      }
      text_.close('}');
    } else if (json.is_array()) {
      text_.open('[');
      for (const Json& value : json) {
        text_.next_item();
        tree(value);
      }
      text_.close(']');
    } else if (json.is_string()) {
      text_.string(json.get_ref<const std::string&>());
    } else {
      text_.raw(json.dump());
    }
  }

  void add_plain(const char* name, std::string_view utf8) {
    key(name);
    text_.string(utf8);
  }
  void add_text(const char* name, const char* where, std::string_view bytes) {
    key(name);
    string(where, bytes);
  }
  template <typename T>
  void add_unchecked(const char* name, const T& value) {
    key(name);
    unchecked(value);
  }
  void add_number(const char* name, std::uint64_t number) {
    key(name);
    text_.number(number);
  }
  void add_boolean(const char* name, bool value) {
    key(name);
    text_.boolean(value);
  }
  void add_time(const char* name, Timestamp at, TimePrecision precision) {
    key(name);
    text_.string(
        format_rfc3339(at, options_.exact_times ? TimePrecision::kNanoseconds : precision));
  }

  // ---- values
  void string(const char* where, std::string_view bytes) {
    if (is_utf8(bytes)) {
      text_.string(bytes);
    } else {
      note_lossy(lossy_, where);
      text_.string(to_utf8_lossy(bytes));
    }
  }
  // For text that no user wrote: repaired like the rest, but not listed in "lossy".
  void unchecked(const std::string& bytes) {
    if (is_utf8(bytes)) {
      text_.string(bytes);
    } else {
      text_.raw(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  void unchecked(const std::vector<std::string>& list) {
    text_.open('[');
    for (const std::string& item : list) {
      text_.next_item();
      unchecked(item);
    }
    text_.close(']');
  }
  void add(const char* name, const char* where, const std::optional<std::string>& value) {
    value ? add_text(name, where, *value) : reserve(name);
  }
  void list(const char* name, const char* where, const std::vector<std::string>& items) {
    if (items.empty()) return;
    key(name);
    text_.open('[');
    for (const std::string& item : items) {
      text_.next_item();
      string(where, item);
    }
    text_.close(']');
  }

  void numbers(const char* name, const std::vector<std::uint32_t>& items) {
    if (items.empty()) return;
    key(name);
    text_.open('[');
    for (const std::uint32_t item : items) {
      text_.next_item();
      text_.number(item);
    }
    text_.close(']');
  }

  // ---- members
  void job() {
    const Job& job = event_.job;
    open("job");
    add_text("id", "job.id", job.id);
    add("name", "job.name", job.name);
    if (!job.array) reserve("array");
    if (!job.het) reserve("het");
    if (job.array) {
      open_plain("array");
      add_text("job_id", "job.array", job.array->job_id);
      add("task_id", "job.array", job.array->task_id);
      add("task_spec", "job.array", job.array->task_spec);
      close();
    }
    if (job.het) {
      open_plain("het");
      add_text("job_id", "job.het", job.het->job_id);
      if (job.het->component) add_number("component", *job.het->component);
      add_boolean("synthetic", job.het->synthetic);
      close();
    }
    add("account", "job.account", job.account);
    add("partition", "job.partition", job.partition);
    add("qos", "job.qos", job.qos);
    reserve("submitted_at");
    if (job.submitted_at) add_time("submitted_at", *job.submitted_at, TimePrecision::kSeconds);
    add("work_dir", "job.work_dir", job.work_dir);
    close();
  }

  void user() {
    const User& user = event_.user;
    open("user");
    add("name", "user.name", user.name);
    add("id", "user.id", user.id);
    reserve("group");
    if (user.group_name || user.group_id) {
      open_plain("group");
      add("name", "user.group.name", user.group_name);
      add("id", "user.group.id", user.group_id);
      close();
    }
    add_boolean("verified", user.verified);
    add("unverified_reason", "user.unverified_reason",
        user.verified ? std::nullopt : user.unverified_reason);
    close();
  }

  void script() {
    open("script");
    for (const char* name :
         {"text", "encoding", "size", "sha256", "directives", "modules", "software"})
      reserve(name);
    if (const EventFile* file = event_.file("script"); file != nullptr) {
      if (options_.script_text && file->bytes != nullptr) {
        const bool utf8 = is_utf8(*file->bytes);
        add_plain("text", utf8 ? std::string_view(*file->bytes) : base64_encode(*file->bytes));
        add_plain("encoding", utf8 ? "utf-8" : "base64");
      }
      add_number("size", file->size);
      add_unchecked("sha256", file->sha256);
    }
    add("interpreter", "script.interpreter", event_.script->interpreter);
    list("directives", "script.directives", event_.script->directives);
    list("modules", "script.modules", event_.script->modules);
    software();
    close();
  }

  void software() {
    if (event_.script->software.empty()) return;
    key("software");
    text_.open('[');
    for (const Software& used : event_.script->software) {
      text_.next_item();
      open(static_cast<const Json*>(nullptr));
      add_unchecked("kind", used.kind);
      add_text("name", "script.software", used.name);
      close();
    }
    text_.close(']');
  }

  void environment() {
    const EventFile* file = event_.file("environment");
    if (file == nullptr) return;
    if (options_.environment && file->bytes != nullptr &&
        event_.environment_format == EnvironmentFormat::kNulEnded) {
      const TextVariables variables = text_variables(*file->bytes);
      if (!variables.repaired.empty()) note_lossy(lossy_, "environment");
      key("environment");
      text_.open('{');
      for (const Variable& v : variables.list) {
        text_.key(v.name);
        text_.string(v.value);
      }
      text_.close('}');
    }
    if (event_.environment_format == EnvironmentFormat::kRaw)
      add_plain("environment_format", "raw");
    add_number("environment_size", file->size);
  }

  void files() {
    if (event_.files.empty()) return;
    key("files");
    text_.open('[');
    for (const EventFile& file : event_.files) {
      text_.next_item();
      open(static_cast<const Json*>(nullptr));
      add_text("name", "files", file.name);
      add_number("size", file.size);
      add_unchecked("sha256", file.sha256);
      close();
    }
    text_.close(']');
  }

  void redactions() {
    if (event_.redactions.empty()) return;
    key("redactions");
    text_.open('[');
    for (const Redaction& redaction : event_.redactions) {
      text_.next_item();
      open(static_cast<const Json*>(nullptr));
      add_text("rule", "redactions", redaction.rule);
      add_text("where", "redactions", redaction.where);
      add_number("count", redaction.count);
      if (redaction.kept) add_boolean("kept", true);
      numbers("lines", redaction.lines);
      list("names", "redactions", redaction.names);
      close();
    }
    text_.close(']');
  }

  const Event& event_;
  const JsonOptions& options_;
  Text text_;
  Json extra_;
  std::vector<Level> levels_;
  std::vector<std::string> lossy_;
  bool lossy_written_ = false;
};

}  // namespace

std::string event_json(const Event& event, const JsonOptions& options) {
  return Writer(event, options).write();
}

void make_text_utf8(Event& event) {
  const auto fix = [&event](const char* where, std::string& bytes) {
    if (is_utf8(bytes)) return;
    bytes = to_utf8_lossy(bytes);
    note_lossy(event.lossy, where);
  };
  const auto fix_optional = [&fix](const char* where, std::optional<std::string>& bytes) {
    if (bytes) fix(where, *bytes);
  };
  fix("job.id", event.job.id);
  fix_optional("job.name", event.job.name);
  if (event.job.array) {
    fix("job.array", event.job.array->job_id);
    fix_optional("job.array", event.job.array->task_id);
    fix_optional("job.array", event.job.array->task_spec);
  }
  if (event.job.het) fix("job.het", event.job.het->job_id);
  fix_optional("job.account", event.job.account);
  fix_optional("job.partition", event.job.partition);
  fix_optional("job.qos", event.job.qos);
  fix_optional("job.work_dir", event.job.work_dir);
  fix_optional("user.name", event.user.name);
  fix_optional("user.id", event.user.id);
  fix_optional("user.group.name", event.user.group_name);
  fix_optional("user.group.id", event.user.group_id);
  fix_optional("user.unverified_reason", event.user.unverified_reason);
  if (event.script) {
    fix_optional("script.interpreter", event.script->interpreter);
    for (std::string& item : event.script->directives) fix("script.directives", item);
    for (std::string& item : event.script->modules) fix("script.modules", item);
    for (Software& item : event.script->software) fix("script.software", item.name);
  }
  for (Redaction& redaction : event.redactions) {
    fix("redactions", redaction.rule);
    fix("redactions", redaction.where);
    for (std::string& name : redaction.names) fix("redactions", name);
  }
  for (std::string& problem : event.problems) fix("problems", problem);
}

}  // namespace scriptorium

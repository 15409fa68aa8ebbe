#include "backends/elasticsearch/document.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/api/kit/text_variables.h"
#include "core/base/json_text.h"
#include "core/base/text.h"
#include "core/base/time.h"

namespace scriptorium::elasticsearch {
namespace {

// Directives, modules and software come from the script, which may hold nothing else; what is
// listed beside its text is bounded.
constexpr std::size_t kListMaxBytes = 65'536;

std::size_t item_bytes(const std::string& text) { return text.size() + 3; }
std::size_t item_bytes(const Software& used) { return used.kind.size() + used.name.size() + 22; }

// Cuts a list where its bytes exceed the limit; true if it did.
template <typename Item>
bool cap(std::vector<Item>& list) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    bytes += item_bytes(list[i]);
    if (bytes > kListMaxBytes) {
      list.resize(i);
      return true;
    }
  }
  return false;
}

template <typename Item>
bool is_long(const std::vector<Item>& list) {
  std::size_t bytes = 0;
  for (const Item& item : list) bytes += item_bytes(item);
  return bytes > kListMaxBytes;
}

// Whether it has a text that belongs into the document, but not its bytes.
bool lacks_bytes(const Event& event, const ElasticsearchConfig& config) {
  const auto lost = [&](std::string_view name) {
    const EventFile* file = event.file(name);
    return file != nullptr && file->bytes == nullptr;
  };
  return (config.script_text && event.script && lost("script")) ||
         (config.environment && event.environment_format == EnvironmentFormat::kNulEnded &&
          lost("environment"));
}

// What a late owner changes, for a server to merge into the document that is there. A merge leaves
// what it does not name, so what the new owner has not is named as null: of an unverified one it
// may be what the user wrote.
void append_changes(const Event& event, std::string& out) {
  using Json = nlohmann::ordered_json;
  const Json all = Json::parse(event_json(event, {.script_text = false, .environment = false}));
  Json changes;
  for (const char* name : {"id", "replaces", "user", "job"}) changes[name] = all.at(name);
  const auto name_all = [](Json& object, std::initializer_list<const char*> names) {
    for (const char* name : names) object.emplace(name, nullptr);
  };
  Json& user = changes["user"];
  name_all(user, {"name", "id", "group", "unverified_reason"});
  if (user["group"].is_object()) name_all(user["group"], {"name", "id"});
  out += changes.dump();
}

class Renderer {
 public:
  Renderer(const Event& event, const ElasticsearchConfig& config, std::string& out)
      : event_(event), config_(config), out_(out) {}

  Cuts render() {
    const EventFile* script = event_.file("script");
    if (script != nullptr && script->bytes != nullptr && config_.script_text && event_.script)
      script_ = script->bytes.get();
    const EventFile* environment = event_.file("environment");
    if (environment != nullptr && environment->bytes != nullptr && config_.environment &&
        event_.environment_format == EnvironmentFormat::kNulEnded) {
      environment_ = environment->bytes.get();
    }
    const std::string json = known_members();

    out_ += R"({"@timestamp":")";
    out_ += format_rfc3339(event_.time, TimePrecision::kMilliseconds);
    out_ += "\",";
    // event_json() writes one object: without its braces. In a JSON text an unescaped "script":{ is
    // structure, never a value; and what precedes the event's own script has no member of that
    // name.
    std::string_view members = std::string_view(json).substr(1, json.size() - 2);
    constexpr std::string_view kScript = R"("script":{)";
    const std::size_t at = event_.script && (script_ != nullptr || lists_cut_)
                               ? members.find(kScript)
                               : std::string_view::npos;
    if (at != std::string_view::npos) {
      const std::size_t inside = at + kScript.size();
      out_ += members.substr(0, inside);
      const std::size_t before = out_.size();
      add_script();
      members.remove_prefix(inside);
      if (members.front() == '}' && out_.size() > before)
        out_.pop_back();  // the comma: there is nothing more in it
    }
    out_ += members;
    if (environment_ != nullptr) add_environment();
    add_labels();
    out_ += '}';
    return cuts_;
  }

 private:
  // What another kind of event brings along, without the members that this file writes: a document
  // that names one twice is refused. Its labels go among ours.
  std::string fit_extra() {
    using Json = nlohmann::ordered_json;
    Json extra = Json::parse(event_.extra_json, nullptr, false);
    if (!extra.is_object()) return {};
    if (const auto labels = extra.find("labels"); labels != extra.end() && labels->is_object()) {
      for (const auto& [name, value] : labels->items()) {
        if (labels_.size() >= kMostLabels || !is_label_name(name) || !value.is_primitive() ||
            value.is_null())
          continue;
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (is_utf8(text))
          labels_.emplace_back(name, std::string(utf8_prefix(text, kLabelMaxBytes)));
      }
    }
    for (const char* name : {"@timestamp", "labels", "environment", "environment_truncated"})
      extra.erase(name);
    return extra.empty() ? std::string{}
                         : extra.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  // The event without script text and environment.
  std::string known_members() {
    constexpr JsonOptions kBare{.script_text = false, .environment = false};
    const bool lossy_environment =
        environment_ != nullptr && !is_utf8(*environment_) &&
        std::ranges::find(event_.lossy, "environment") == event_.lossy.end();
    const bool long_lists =
        event_.script && (is_long(event_.script->directives) || is_long(event_.script->modules) ||
                          is_long(event_.script->software));
    if (!lossy_environment && !long_lists && event_.extra_json.empty())
      return event_json(event_, kBare);
    Event copy = event_;
    if (!copy.extra_json.empty()) copy.extra_json = fit_extra();
    if (lossy_environment) copy.lossy.emplace_back("environment");
    if (long_lists) {
      const bool directives = cap(copy.script->directives);
      const bool modules = cap(copy.script->modules);
      const bool software = cap(copy.script->software);
      lists_cut_ = directives || modules || software;
    }
    return event_json(copy, kBare);
  }

  void add_script() {
    bool cut = lists_cut_;
    if (script_ != nullptr) {
      const auto limit = static_cast<std::size_t>(config_.script_max_bytes);
      const bool utf8 = is_utf8(*script_);
      std::string lossy;
      // Three bytes of U+FFFD may replace one, so the bytes are cut first, and then the text.
      const std::string_view beginning =
          std::string_view(*script_).substr(0, utf8 ? std::string_view::npos : limit);
      if (!utf8) lossy = to_utf8_lossy(beginning);
      const std::string_view whole = utf8 ? beginning : std::string_view(lossy);
      const std::string_view text = utf8_prefix(whole, limit);
      cut = cut || text.size() < whole.size() || beginning.size() < script_->size();
      out_ += R"("text":)";
      append_json_string(text, out_);
      out_ += utf8 ? R"(,"encoding":"utf-8",)" : R"(,"encoding":"base64",)";
      if (!utf8) out_ += R"("raw":")" + base64_encode(beginning) + "\",";
    }
    if (cut) out_ += R"("truncated":true,)";
    cuts_.script = cut;
  }

  void add_environment() {
    // Each name once: a document that names a member twice is refused.
    const TextVariables variables = text_variables(*environment_);
    const auto limit = static_cast<std::size_t>(config_.environment_max_bytes);
    std::size_t used = 0;
    out_ += R"(,"environment":{)";
    for (const auto& [name, whole] : variables.list) {
      const std::string_view value = utf8_prefix(whole, kVariableMaxBytes);
      if (name.empty() || name.size() > kVariableNameMaxBytes ||
          used + name.size() + value.size() > limit) {
        cuts_.environment = true;
        continue;
      }
      cuts_.environment = cuts_.environment || value.size() < whole.size();
      used += name.size() + value.size();
      add_member(name, value);
    }
    out_ += '}';
    if (cuts_.environment) out_ += R"(,"environment_truncated":true)";
  }

  void add_labels() {
    for (const auto& label : config_.labels) {
      std::erase_if(labels_, [&](const auto& other) { return other.first == label.first; });
      labels_.push_back(label);
    }
    if (labels_.empty()) return;
    out_ += R"(,"labels":{)";
    for (const auto& [name, value] : labels_) add_member(name, value);
    out_ += '}';
  }

  // A text in the open object.
  void add_member(std::string_view name, std::string_view value) {
    if (out_.back() != '{') out_ += ',';
    append_json_string(name, out_);
    out_ += ':';
    append_json_string(value, out_);
  }

  const Event& event_;
  const ElasticsearchConfig& config_;
  std::string& out_;
  const std::string* script_ = nullptr;
  const std::string* environment_ = nullptr;
  bool lists_cut_ = false;
  std::vector<std::pair<std::string, std::string>> labels_;
  Cuts cuts_;
};

}  // namespace

std::string_view utf8_prefix(std::string_view text, std::size_t limit) noexcept {
  if (text.size() <= limit) return text;
  std::size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

const std::string& document_id(const Event& event, Replacing replacing) noexcept {
  return event.replaces && replacing == Replacing::kInPlace ? *event.replaces : event.id;
}

Cuts append_document(const Event& event, const ElasticsearchConfig& config, Replacing replacing,
                     std::string& body) {
  const bool in_place = event.replaces && replacing == Replacing::kInPlace;
  const bool update = in_place && lacks_bytes(event, config);
  body += update     ? R"({"update":{"_index":")"
          : in_place ? R"({"index":{"_index":")"
                     : R"({"create":{"_index":")";
  body += config.index_name.of(event);  // only characters that JSON takes as they are
  body += R"(","_id":)";
  append_json_string(document_id(event, replacing), body);
  body += update ? ",\"retry_on_conflict\":3}}\n" : "}}\n";
  if (update) {
    body += R"({"doc":)";
    append_changes(event, body);
    body += R"(,"upsert":)";
  }
  const Cuts cuts = Renderer(event, config, body).render();
  body += update ? "}\n" : "\n";
  return cuts;
}

}  // namespace scriptorium::elasticsearch

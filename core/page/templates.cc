#include "core/page/templates.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/sha256.h"
#include "core/page/embedded.h"
#include "core/page/request.h"

namespace scriptorium::page {
namespace {

constexpr std::string_view kTextTag = "{{t.";
constexpr std::string_view kPartTag = "{{>";
constexpr std::string_view kTemplate = ".mustache";

using Texts = std::map<std::string, std::string, std::less<>>;

Texts read_texts(std::string_view file) {
  constexpr std::string_view kIs = " = ";
  Texts texts;
  while (!file.empty()) {
    const std::string_view line = file.substr(0, file.find('\n'));
    file.remove_prefix(std::min(line.size() + 1, file.size()));
    const std::size_t end = line.find(kIs);
    if (line.starts_with('#') || end == std::string_view::npos) continue;
    texts.emplace(line.substr(0, end), line.substr(end + kIs.size()));
  }
  return texts;
}

const Texts& texts() {
  static const Texts kTexts = [] {
    const auto files = embedded_files();
    const auto found = std::find_if(files.begin(), files.end(),
                                    [](const Embedded& file) { return file.name == "texts.txt"; });
    return read_texts(found->bytes);
  }();
  return kTexts;
}

std::string text_of(std::string_view key) {
  const auto found = texts().find(key);
  return found == texts().end() ? std::string(key) : found->second;
}

std::string with_texts(std::string_view bytes) {
  std::string result;
  while (true) {
    const std::size_t begin = bytes.find(kTextTag);
    const std::size_t end = bytes.find("}}", begin);
    if (end == std::string_view::npos) return result.append(bytes);
    const std::size_t key = begin + kTextTag.size();
    result.append(bytes.substr(0, begin)).append(text_of(bytes.substr(key, end - key)));
    bytes.remove_prefix(end + 2);
  }
}

using Templates = std::vector<std::pair<std::string, std::string>>;  // without ".mustache"

const std::string& text_of_template(const Templates& templates, std::string_view name) {
  return std::find_if(templates.begin(), templates.end(),
                      [&](const auto& one) { return one.first == name; })
      ->second;
}

// In place of "{{>name}}" that template, so that it is not parsed again for each row.
void insert_parts(std::string& text, const Templates& all) {
  for (std::size_t begin = 0; (begin = text.find(kPartTag, begin)) != std::string::npos;) {
    const std::size_t name = begin + kPartTag.size();
    const std::size_t end = text.find("}}", name);
    std::string part = text_of_template(all, text.substr(name, end - name));
    part.resize(part.find_last_not_of('\n') + 1);
    text.replace(begin, end + 2 - begin, part);  // which may have parts, too
  }
}

const Templates& templates() {
  static const Templates kAll = [] {
    Templates all;
    for (const Embedded& file : embedded_files()) {
      if (!file.name.ends_with(kTemplate)) continue;
      all.emplace_back(file.name.substr(0, file.name.size() - kTemplate.size()),
                       with_texts(file.bytes));
    }
    for (auto& [name, text] : all) insert_parts(text, all);
    return all;
  }();
  return kAll;
}

// Rendering changes it, so each thread has its own.
kainjow::mustache::mustache& parsed_template(std::string_view name) {
  static thread_local std::map<const std::string*, kainjow::mustache::mustache> parsed;
  const std::string& text = text_of_template(templates(), name);
  return parsed.try_emplace(&text, text).first->second;
}

}  // namespace

std::string words(std::string_view key, std::initializer_list<std::string> values) {
  const std::string text = text_of(key);
  std::string_view rest = text;
  std::string result;
  for (const std::string& value : values) {
    const std::size_t place = std::min(rest.find("{}"), rest.size());
    result.append(rest.substr(0, place)).append(value);
    rest.remove_prefix(std::min(place + 2, rest.size()));
  }
  return result.append(rest);
}

std::string count_text(std::uint64_t count, const char* one, const char* several) {
  return count == 1 ? words(one) : words(several, {std::to_string(count)});
}

Values text_value(const std::string& text) { return {"text", text}; }

void set_list(Values& values, const std::string& name, const kainjow::mustache::list& list) {
  values.set("has_" + name, !list.empty());
  values.set(name, list);
}

void set_html(Values& values, const Html& html) { values.set("html", html.text); }

std::string filled(std::string_view name, Values values, const std::string& root) {
  values.set("root", root);
  values.set("assets", root + "static/" + assets_hash() + "/");
  return parsed_template(name).render(values);
}

std::vector<std::pair<std::string_view, std::string_view>> all_templates() {
  return {templates().begin(), templates().end()};
}

Asset asset(std::string_view name) {
  for (const Embedded& file : embedded_files()) {
    if (file.name != name) continue;
    if (name.ends_with(".css")) return {file.bytes, "text/css; charset=utf-8"};
    if (name.ends_with(".js")) return {file.bytes, "text/javascript; charset=utf-8"};
    if (name.ends_with(".json")) return {file.bytes, "application/json"};
    if (name.ends_with(".svg")) return {file.bytes, "image/svg+xml"};
  }
  return {};
}

const std::string& assets_hash() {
  static const std::string kHash = [] {
    Sha256 hash;
    for (const Embedded& file : embedded_files()) hash.update(file.bytes);
    return hash.finish_hex().substr(0, 16);
  }();
  return kHash;
}

Response plain_page(unsigned status, const std::string& sentence, std::string_view target) {
  if (is_for_programs(target)) return json_response({{"error", sentence}}, status);
  Values values;
  values.set("title", std::to_string(status));
  values.set("sentence", sentence);
  return {.status = status,
          .body = filled("sentence", std::move(values), way_to_first_page(target))};
}

}  // namespace scriptorium::page

#include "core/page/templates.h"

#include <algorithm>

#include "core/base/sha256.h"
#include "core/page/embedded.h"
#include "core/page/request.h"

namespace scriptorium::page {
namespace {

std::string_view template_text(std::string_view name) {
  for (const Embedded& file : embedded_files()) {
    if (file.name == std::string(name) + ".mustache") return file.bytes;
  }
  return {};
}

kainjow::mustache::partial part(std::string_view name) {
  return {[name] { return std::string(template_text(name)); }};
}

}  // namespace

void set_html(Values& values, const Html& html) { values.set("html", html.text); }

std::string filled(std::string_view name, Values values, const std::string& root) {
  values.set("head", part("head"));
  values.set("foot", part("foot"));
  values.set("root", root);
  values.set("assets", root + "static/" + assets_hash() + "/");
  kainjow::mustache::mustache page{std::string(template_text(name))};
  return page.render(values);
}

std::vector<std::pair<std::string_view, std::string_view>> all_templates() {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  for (const Embedded& file : embedded_files()) {
    if (file.name.ends_with(".mustache")) all.emplace_back(file.name, file.bytes);
  }
  return all;
}

Asset asset(std::string_view name) {
  for (const Embedded& file : embedded_files()) {
    if (file.name != name) continue;
    if (name.ends_with(".css")) return {file.bytes, "text/css; charset=utf-8"};
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
  Values values;
  values.set("title", std::to_string(status));
  values.set("sentence", sentence);
  return {.status = status,
          .body = filled("sentence", std::move(values), way_to_first_page(target))};
}

}  // namespace scriptorium::page

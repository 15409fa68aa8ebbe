#pragma once

#include <cstdint>
#include <initializer_list>
#include <kainjow/mustache.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/page/shown.h"

// The pages' mustache templates (core/page/templates) and what they link (core/page/assets), which
// the program holds. Threads: any.
namespace scriptorium::page {

using Values = kainjow::mustache::data;

// A text of core/page/texts.txt, with a value in place of each {}. A key that is not there is a
// fault of the program, and its own text.
std::string words(std::string_view key, std::initializer_list<std::string> values = {});

// The text `one`, or `several` with the number.
std::string count_text(std::uint64_t count, const char* one, const char* several);

// {{text}} of a list's item.
Values text_value(const std::string& text);
// The list, and has_NAME, whether it has any.
void set_list(Values& values, const std::string& name, const kainjow::mustache::list& list);
// The value "html", which templates hold as it is; they escape all others.
void set_html(Values& values, const Html& html);

// The template with these values, after the head and before the foot of every page. `root` is the
// way from the page to the first one: "" or "../../".
std::string filled(std::string_view name, Values values, const std::string& root);
// All of them, for the test that each can be parsed.
std::vector<std::pair<std::string_view, std::string_view>> all_templates();

struct Asset {
  std::string_view bytes;
  const char* type = "";
};
// "app.css"; no bytes for a name that no asset has.
Asset asset(std::string_view name);
// Of all assets together, for addresses that browsers may keep for good.
const std::string& assets_hash();

}  // namespace scriptorium::page

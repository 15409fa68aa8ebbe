#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/kit/text_template.h"
#include "core/api/options.h"

namespace scriptorium::mail {

// What can be a language, "de" or "pt-BR": it becomes the name of a file and an attribute of HTML.
bool is_language(std::string_view text) noexcept;

// The sentences of the mails in one language: those of the site's LANGUAGE.toml, else those that
// are shipped (core/mail/texts/), else the English ones. `{name}` in a sentence is replaced.
// Threads: any, once loaded.
class Texts {
 public:
  using Values = std::map<std::string_view, std::string>;

  // `folder`: of the site; it need not exist. What is wrong there is reported with file, line and
  // key: an unknown key or {name}, a sentence that only English has, a language that no file has.
  // The result can be used all the same.
  static Texts load(const std::string& language, const std::string& folder, Problems& problems);
  // Those that are shipped and those of the folder, in order: "de", "en", "fr".
  static std::vector<std::string> languages(const std::string& folder);

  // "en" if no file has the language that was asked for.
  const std::string& language() const noexcept { return language_; }
  // The sentence `key` of the table [mail] with its values put in. "" for a key that no file has.
  std::string text(std::string_view key, const Values& values = {}) const;
  // `key` + "_one" for 1, else `key` + "_many"; {count} is put in, too.
  std::string counted(std::string_view key, std::uint64_t count, Values values = {}) const;
  // What a finding means, from the table [findings]. "" for an id that no file has.
  std::string finding(std::string_view id) const;

 private:
  std::string language_;
  std::map<std::string, TextTemplate, std::less<>> sentences_;  // "mail.greeting"
};

}  // namespace scriptorium::mail

#include "core/redact/placeholder.h"

#include <gtest/gtest.h>

namespace scriptorium::redact {
namespace {

TEST(PlaceholderTest, ReferencesMasksAndInvitationsAreNoSecrets) {
  for (const char* text : {"",
                           "$X",
                           "\\$TOKEN",
                           "\\\\${TOKEN_2}",
                           "${X:-y}",
                           "$(cat f)",
                           "$1",
                           "`cat f`",
                           "%s",
                           "%(name)s",
                           "%TOKEN%",
                           "<token>",
                           "<(cat f)",
                           "{}",
                           "{{ token }}",
                           "[MASK]",
                           "@TOKEN@",
                           "xxxx",
                           "XXXX-XXXX",
                           "****",
                           "...",
                           "None",
                           "NULL",
                           "true",
                           "off",
                           "your_token_here",
                           "YOUR-KEY",
                           "hf_xxxxxxxx",
                           "<put it here>",
                           "sk-...paste_here",
                           "hf_...",
                           "EMPTY",
                           "[redacted:jwt]",
                           "a [redacted:jwt] b"})
    EXPECT_TRUE(is_placeholder(text)) << text;
}

TEST(PlaceholderTest, WeakPasswordsAreSecrets) {
  for (const char* text :
       {"changeme",  "password", "secret", "x",     "0000",   "1234",    "pa$$word",    "$$",
        "$-9",       "%41b",     "%1x",    "{abc",  "<3you",  "[x",      "@home",       "nothing",
        "\\$ecret1", "truely",   "onion",  "yours", "hereby", "EXAMPLE", "\xe4\xf6\xfc"})
    EXPECT_FALSE(is_placeholder(text)) << text;
}

}  // namespace
}  // namespace scriptorium::redact

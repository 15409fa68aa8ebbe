// The pages that are made from the code, or quote it, are what the code says today.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/core/cli/said.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::cli {
namespace {

const std::string kSource = SCRIPTORIUM_SOURCE_DIR;

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> page_names() {
  std::istringstream names(SCRIPTORIUM_PLUGIN_NAMES " core");
  return {std::istream_iterator<std::string>(names), std::istream_iterator<std::string>()};
}

TEST(ReferenceTest, EachPluginsPageIsWhatTheCommandPrints) {
  const test::TempDir own;
  const std::string config = own.write(
      "scriptorium.toml", "cluster = \"lab\"\nplugin_dirs = [\"" SCRIPTORIUM_PLUGINS "\"]\n");
  ASSERT_GE(page_names().size(), 6U);
  for (const std::string& name : page_names()) {
    const Said said = say({"plugins", name, "--markdown", "--config", config});
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(contents(kSource + "/docs/reference/" + name + ".md"), said.out)
        << "docs/reference/" << name
        << ".md is out of date: cmake --build build/dev --target reference";
  }
}

// In docs, "<!-- quote: FILE -->" says that the code block beneath stands in that file, line for
// line.
TEST(QuoteTest, EveryQuotedBlockStandsInItsFile) {
  std::size_t quotes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource + "/docs")) {
    if (entry.path().extension() != ".md") continue;
    const std::string page = contents(entry.path());
    constexpr std::string_view kMark = "<!-- quote: ";
    for (std::size_t at = page.find(kMark); at != std::string::npos;
         at = page.find(kMark, at + 1)) {
      const std::size_t name_end = page.find(" -->", at);
      ASSERT_NE(name_end, std::string::npos) << entry.path();
      const std::string name = page.substr(at + kMark.size(), name_end - at - kMark.size());
      const std::size_t fence = page.find("\n```", name_end);
      ASSERT_EQ(fence, name_end + 4)
          << entry.path() << ": no code block right beneath the quote of " << name;
      const std::size_t begin = page.find('\n', fence + 1) + 1;
      const std::size_t end = page.find("\n```", begin);
      ASSERT_NE(end, std::string::npos) << entry.path();
      const std::string quoted = page.substr(begin, end + 1 - begin);
      const std::string file = "\n" + contents(kSource + "/" + name);
      EXPECT_NE(file.find("\n" + quoted), std::string::npos)
          << entry.path() << " quotes what " << name << " does not say:\n"
          << quoted;
      ++quotes;
    }
  }
  EXPECT_GE(quotes, 8U) << "the tutorial quotes the smallest plugins";
}

}  // namespace
}  // namespace scriptorium::cli

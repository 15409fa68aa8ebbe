#include "checkpoint/run/criu_files.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

// The head of criu 4.1's files.img, and its entry of a file at position 300.
constexpr const char* kHead = "1943565438313056";
std::string entry(const std::string& position, const std::string& path) {
  const std::string regular =
      "080b108188081" + std::string("8") + position + "2a0a08001000180020002800" + "32" +
      hex_encode(std::string(1, static_cast<char>(path.size()))) + hex_encode(path) + "40f09f4d";
  const auto bytes = static_cast<char>(regular.size() / 2);
  return hex_encode(std::string(1, static_cast<char>(bytes + 6))) + "000000" + "0801" + "100b" +
         "1a" + hex_encode(std::string(1, bytes)) + regular;
}

TEST(CriuFilesTest, ThePositionIsTheLargestOfThePathsDescriptors) {
  const std::string image =
      *hex_decode(kHead + entry("00", "/usr/bin/bash") + entry("ac02", "/home/a/output") +
                  entry("7f", "/home/a/output") + entry("ad02", "/home/a/x"));
  EXPECT_EQ(position_in_image(image, "/home/a/output"), 300U);
  EXPECT_EQ(position_in_image(image, "/home/a/outpu"), std::nullopt);
  for (std::size_t bytes = 0; bytes < image.size(); ++bytes) {
    const auto cut = position_in_image(image.substr(0, bytes), "/home/a/output");
    EXPECT_TRUE(!cut || *cut == 300) << bytes;
  }
  EXPECT_EQ(position_in_image(std::string(200, '\xff'), "/home/a/output"), std::nullopt);
}

}  // namespace
}  // namespace scriptorium::checkpoint

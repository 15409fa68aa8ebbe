#include "backends/elasticsearch/suspects.h"

#include <gtest/gtest.h>

namespace scriptorium::elasticsearch {
namespace {

using namespace std::chrono_literals;

const SteadyTime kStart = SteadyTime{} + 1h;

TEST(SuspectsTest, ADocumentIsGuiltyAfterManyRefusalsForLongWhileOthersWereTaken) {
  Suspects suspects;
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(suspects.refused("a", "job", kStart)) << "not for long";
  EXPECT_FALSE(suspects.refused("a", "job", kStart + 10min)) << "nothing else was taken";
  EXPECT_FALSE(suspects.others_accepted_since("a"));
  suspects.accepted_one("usage");
  EXPECT_FALSE(suspects.others_accepted_since("a")) << "another template";
  suspects.accepted_one("job");
  EXPECT_TRUE(suspects.others_accepted_since("a"));
  EXPECT_TRUE(suspects.refused("a", "job", kStart + 10min));
  EXPECT_FALSE(suspects.refused("b", "job", kStart + 10min)) << "not often";
}

TEST(SuspectsTest, WhatWasForgottenBeginsAgain) {
  Suspects suspects;
  for (int i = 0; i < 8; ++i) static_cast<void>(suspects.refused("a", "job", kStart));
  suspects.accepted_one("job");
  suspects.forget("a");
  EXPECT_FALSE(suspects.others_accepted_since("a"));
  EXPECT_FALSE(suspects.refused("a", "job", kStart + 10min));
}

}  // namespace
}  // namespace scriptorium::elasticsearch

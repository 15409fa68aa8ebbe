#include "backends/elasticsearch/suspects.h"

#include <gtest/gtest.h>

namespace scriptorium::elasticsearch {
namespace {

using namespace std::chrono_literals;

const SteadyTime kStart = SteadyTime{} + 1h;

TEST(SuspectsTest, ADocumentIsGuiltyAfterManyRefusalsForLongWhileOthersWereTaken) {
  Suspects suspects;
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(suspects.refused("a", kStart)) << "not for long";
  EXPECT_FALSE(suspects.refused("a", kStart + 10min)) << "nothing else was taken";
  EXPECT_FALSE(suspects.others_accepted_since("a"));
  suspects.accepted_something();
  EXPECT_TRUE(suspects.others_accepted_since("a"));
  EXPECT_TRUE(suspects.refused("a", kStart + 10min));
  EXPECT_FALSE(suspects.refused("b", kStart + 10min)) << "not often";
}

TEST(SuspectsTest, WhatWasForgottenBeginsAgain) {
  Suspects suspects;
  for (int i = 0; i < 8; ++i) static_cast<void>(suspects.refused("a", kStart));
  suspects.accepted_something();
  suspects.forget("a");
  EXPECT_FALSE(suspects.others_accepted_since("a"));
  EXPECT_FALSE(suspects.refused("a", kStart + 10min));
}

}  // namespace
}  // namespace scriptorium::elasticsearch

#include "core/page/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace scriptorium::page {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uid_t kProxy = 33;

TEST(Target, IsDecodedByPart) {
  const auto target = parse_target("/job/c%2Fd/10%2B1?q=a+b%26&q=second&after=&x");
  ASSERT_TRUE(target);
  EXPECT_THAT(target->path, ElementsAre("job", "c/d", "10+1"));
  EXPECT_EQ(target->query_value("q"), "a b&");
  EXPECT_EQ(target->query_value("after"), "");
  EXPECT_EQ(target->query_value("absent"), "");
  EXPECT_TRUE(target->has_query("after"));
  EXPECT_FALSE(target->has_query("absent"));
  EXPECT_THAT(parse_target("/job/c/10+1")->path, ElementsAre("job", "c", "10+1"));
  EXPECT_TRUE(parse_target("/")->path.empty());
  EXPECT_TRUE(parse_target("/job/")->path.size() == 1);
}

TEST(Target, OddAddressesAreRefused) {
  for (const char* bad : {"", "job", "*", "http://host/", "//", "/a//b", "/./a", "/a/../b",
                          "/%2e%2e/b", "/%", "/%4", "/%zz", "/?q=%", "/a?%zz=1"})
    EXPECT_FALSE(parse_target(bad)) << bad;
}

TEST(Target, WhatIsEncodedIsDecoded) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(parse_target("/?q=" + percent_encoded(all))->query_value("q"), all);
  EXPECT_THAT(parse_target("/x/" + percent_encoded(all))->path, ElementsAre("x", all));
}

TEST(ProxyGate, BelievesOneNameFromTheProxyOnly) {
  ProxyGate gate({kProxy, 48});
  const auto as = [&](std::optional<uid_t> peer, std::vector<std::string_view> users) {
    return gate.admit({.peer = peer, .target = "/", .hosts = {"h"}, .users = std::move(users)});
  };
  EXPECT_EQ(as(kProxy, {"alice"}).login, "alice");
  EXPECT_EQ(as(48, {"alice"}).login, "alice");
  for (const auto& refused :
       {as(1000, {"alice"}), as(0, {"alice"}), as({}, {"alice"}), as(kProxy, {}), as(kProxy, {""}),
        as(kProxy, {"alice", "alice"}), as(kProxy, {"alice", "root"})}) {
    EXPECT_EQ(refused.login, "");
    ASSERT_TRUE(refused.answer);
    EXPECT_EQ(refused.answer->status, 403U);
    EXPECT_TRUE(refused.closes);
    EXPECT_NE(refused.reason, "");
  }
  EXPECT_THAT(as(1000, {"alice"}).reason, HasSubstr("uid 1000"));
}

class KeyGateTest : public ::testing::Test {
 protected:
  Gate::Admitted ask(const std::string& target, const std::string& cookie = "",
                     const std::string& host = "127.1.2.3:99") {
    Head head{.peer = {}, .target = target, .hosts = {host}};
    if (!cookie.empty()) head.cookies = {cookie};
    return gate_->admit(head);
  }
  unsigned status(const Gate::Admitted& admitted) {
    return admitted.answer ? admitted.answer->status : 200;
  }
  std::string keyed() { return gate_->address().substr(gate_->address().find("/?")); }
  // The cookie that the key gives, as a browser sends it back.
  std::string cookie() {
    const auto admitted = ask(keyed());
    for (const auto& [name, value] : admitted.answer->headers) {
      if (name == "Set-Cookie") return value.substr(0, value.find(';'));
    }
    return "";
  }
  std::unique_ptr<KeyGate> gate_ = *KeyGate::create("alice", "127.1.2.3:99");
};

TEST_F(KeyGateTest, TheKeyGivesACookieOnce) {
  const auto first = ask(keyed());
  ASSERT_EQ(status(first), 303U);
  EXPECT_EQ(first.login, "");
  const std::string& set = first.answer->headers.at(1).second;
  EXPECT_THAT(set, HasSubstr("; HttpOnly; SameSite=Strict; Path=/"));
  EXPECT_EQ(first.answer->headers.at(0).second, "/");
  EXPECT_EQ(status(ask(keyed())), 403U);
  const std::string pair = set.substr(0, set.find(';'));
  EXPECT_EQ(ask("/", pair).login, "alice");
  EXPECT_EQ(ask("/job/c/1", "other=1; " + pair).login, "alice");
  // The same address again, as after "back": the cookie counts.
  EXPECT_EQ(ask(keyed(), pair).login, "alice");
}

TEST_F(KeyGateTest, NothingWithoutKeyOrCookie) {
  EXPECT_EQ(status(ask("/")), 403U);
  EXPECT_EQ(status(ask("/?key=")), 403U);
  EXPECT_EQ(status(ask("/?key=0")), 403U);
  EXPECT_EQ(status(ask("/", "scriptorium=")), 403U);
  const std::string pair = cookie();
  EXPECT_EQ(status(ask("/", pair + "0")), 403U);
  EXPECT_EQ(status(ask("/", "x" + pair)), 403U);
  EXPECT_EQ(status(ask("/?key=")), 403U) << "a used key is not an empty one";
}

TEST_F(KeyGateTest, TheHostMustBeWhatWasPrinted) {
  EXPECT_EQ(status(ask(keyed(), "", "localhost:99")), 403U);
  EXPECT_EQ(status(ask(keyed(), "", "evil.example")), 403U);
  EXPECT_EQ(status(gate_->admit({.peer = {}, .target = keyed(), .hosts = {}})), 403U);
  const std::string pair = cookie();  // the key was not used up by them
  EXPECT_EQ(status(ask("/", pair, "evil.example")), 403U);
  EXPECT_EQ(ask("/", pair).login, "alice");
}

}  // namespace
}  // namespace scriptorium::page

#include "core/journal/capture_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/base/sha256.h"
#include "core/base/text.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::HasSubstr;

struct HmacVector {
  std::string key, data, expected;
};

// RFC 4231, sections 4.2 to 4.8, without 4.6, which truncates.
TEST(HmacSha256Test, GivesWhatRfc4231Says) {
  const HmacVector vectors[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {*hex_decode("0102030405060708090a0b0c0d0e0f10111213141516171819"), std::string(50, '\xcd'),
       "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The "
       "key needs to be hashed before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"}};
  for (const HmacVector& v : vectors) EXPECT_EQ(hmac_sha256_hex(v.key, v.data), v.expected);
}

class CaptureSecretTest : public testing::Test {
 protected:
  std::string file() const { return dir_.path_to("capture.key"); }
  void expect_refused(const std::string& why) const {
    const auto loaded = CaptureSecret::load(dir_.path());
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(loaded.error().message(), HasSubstr(file() + ": "));
    EXPECT_THAT(loaded.error().message(), HasSubstr(why));
  }

  test::TempDir dir_;
};

TEST_F(CaptureSecretTest, IsTheSameAfterItWasStored) {
  const auto missing = CaptureSecret::load(dir_.path());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind(), ErrorKind::kVanished);
  const auto made = CaptureSecret::make();
  ASSERT_TRUE(made);
  ASSERT_TRUE(made->store(dir_.path()));
  struct stat state{};
  ASSERT_EQ(::stat(file().c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 07777U, 0600U);
  EXPECT_EQ(state.st_size, 32);
  const auto loaded = CaptureSecret::load(dir_.path());
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->key_of("id"), made->key_of("id"));
  EXPECT_EQ(loaded->key_of("id"), hmac_sha256_hex(dir_.read("capture.key"), "id"));
  EXPECT_NE(CaptureSecret::make()->key_of("id"), made->key_of("id"));
}

TEST_F(CaptureSecretTest, IsRefusedIfOthersMayReadIt) {
  ASSERT_TRUE(CaptureSecret::make()->store(dir_.path()));
  ASSERT_EQ(::chmod(file().c_str(), 0640), 0);
  expect_refused("chmod 600");
  ASSERT_EQ(::chmod(file().c_str(), 0602), 0);
  expect_refused("chmod 600");
}

TEST_F(CaptureSecretTest, IsRefusedIfItHasAnotherSize) {
  for (const std::size_t size : {0U, 31U, 33U}) {
    dir_.write("capture.key", std::string(size, 'x'));
    ASSERT_EQ(::chmod(file().c_str(), 0600), 0);
    expect_refused("found " + std::to_string(size) + " bytes, needed 32");
  }
}

TEST_F(CaptureSecretTest, IsRefusedIfItIsNoFileOfItsOwn) {
  ASSERT_TRUE(CaptureSecret::make()->store(dir_.path()));
  std::filesystem::rename(file(), dir_.path_to("elsewhere"));
  std::filesystem::create_symlink("elsewhere", file());
  expect_refused("open");
  std::filesystem::remove(file());
  std::filesystem::create_directory(file());
  expect_refused("no regular file");
}

}  // namespace
}  // namespace scriptorium

#include "checkpoint/saved_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

constexpr std::uint32_t kAlice = 1001;
constexpr const char* kNewest = "it is one of the newest (--all removes it)";
constexpr const char* kWaits = "it waits for its resume (--all removes it)";
constexpr const char* kYoung = "it is not that old";

SavedImage image_of(std::int64_t made_seconds) {
  SavedImage image;
  image.owner = kAlice;
  image.manifest = Manifest{};
  image.made = Timestamp{made_seconds * kSecond};
  return image;
}

// Three of one directory, newest first, of the seconds 30, 20 and 10.
class PruneTest : public testing::Test {
 protected:
  PruneTest() : images_{image_of(30), image_of(20), image_of(10)} { images_[0].waits = true; }
  std::vector<std::string> kept(const PruneRule& rule) const {
    return why_kept(images_, rule, kAlice);
  }

  std::vector<SavedImage> images_;
};

TEST_F(PruneTest, KeepsTheNewestOnly) {
  EXPECT_THAT(kept({}), testing::ElementsAre(kWaits, "", ""));
  EXPECT_THAT(kept({.keep = 2}), testing::ElementsAre(kWaits, kNewest, ""));
  EXPECT_THAT(kept({.all = true}), testing::ElementsAre("", "", ""));
}

TEST_F(PruneTest, AnImageThatIsTooYoungIsKeptAndCounts) {
  EXPECT_THAT(kept({.made_before = Timestamp{20 * kSecond}}),
              testing::ElementsAre(kYoung, kYoung, ""));
  EXPECT_THAT(kept({.made_before = Timestamp{20 * kSecond}, .all = true}),
              testing::ElementsAre(kYoung, kYoung, ""));
  EXPECT_THAT(kept({.keep = 2, .made_before = Timestamp{40 * kSecond}}),
              testing::ElementsAre(kWaits, kNewest, ""));
  images_[2].made.reset();
  EXPECT_EQ(kept({.made_before = Timestamp{20 * kSecond}})[2], kYoung) << "its age is not known";
}

TEST_F(PruneTest, AProgramThatHasEndedNeedsNone) {
  images_[0].waits = false;
  images_[0].exit_code = "0";
  EXPECT_THAT(kept({}), testing::ElementsAre("", "", ""));
  EXPECT_THAT(kept({.keep = 2}), testing::ElementsAre("", kNewest, ""));
}

TEST_F(PruneTest, ADamagedImageTakesNoOthersPlace) {
  images_[0].waits = false;
  images_[0].damage = "a.img is missing";
  EXPECT_THAT(kept({}), testing::ElementsAre("it is damaged: a.img is missing (--all removes it)",
                                             kNewest, ""));
  images_[0].damage.clear();
  images_[1].damage = "a.img is missing";
  EXPECT_THAT(kept({}), testing::ElementsAre(kNewest, "", ""));
}

TEST_F(PruneTest, NothingThatIsAnothersOrNoImageIsRemoved) {
  images_[0].manifest = tl::unexpected(Refusal{"no_image", "a link"});
  images_[1].owner = kAlice + 1;
  EXPECT_THAT(kept({.all = true}),
              testing::ElementsAre("it is not an image: a link", "it belongs to another user", ""));
}

}  // namespace
}  // namespace scriptorium::checkpoint

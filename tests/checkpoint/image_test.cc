#include "checkpoint/image.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/base/file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

// A folder with two images and their manifest.
class ImageTest : public testing::Test {
 protected:
  ImageTest() {
    folder_.write("image/core-1.img", "one");
    folder_.write("image/pages-1.img", std::string(3 << 20, 'p'));
    folder_.write("image/dump.log", "a log is not a part of the image");
    ::chmod(folder_.path_to("image").c_str(), 0700);
    directory_ = UniqueFd(::open(folder_.path_to("image").c_str(), O_RDONLY | O_DIRECTORY));
    manifest_.job = "34";
    manifest_.engine = "criu";
    manifest_.machine = {.node = "n1", .kernel = "6.1", .cpu_model = "m", .cpu_flags = {"a", "b"}};
    manifest_.processes = 2;
    manifest_.files = hash_images(directory_.get()).value();
    write_manifest();
  }
  void write_manifest() { folder_.write("image/manifest.json", manifest_text(manifest_)); }
  std::string refused(ImageCheck check = ImageCheck::kAll) const {
    const auto checked = check_image(directory_.get(), ::geteuid(), check);
    return checked ? "" : checked.error().reason + ": " + checked.error().detail;
  }

  test::TempDir folder_;
  UniqueFd directory_;
  Manifest manifest_;
};

TEST_F(ImageTest, ManifestIsReadAsItWasWritten) {
  const auto read = parse_manifest(manifest_text(manifest_));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->job, "34");
  EXPECT_EQ(read->machine.cpu_flags, manifest_.machine.cpu_flags);
  ASSERT_EQ(read->files.size(), 2U);
  EXPECT_EQ(read->files, manifest_.files);
  EXPECT_EQ(read->files[0].sha256,
            "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");  // of "one"
  EXPECT_EQ(refused(), "");
}

TEST_F(ImageTest, HashesManySmallImagesWithoutALargeBufferForEach) {
  constexpr int kImages = 200;
  for (int i = 0; i < kImages; ++i) folder_.write("image/x" + std::to_string(i) + ".img", "small");
  struct rusage before{};
  struct rusage after{};
  ::getrusage(RUSAGE_SELF, &before);
  EXPECT_EQ(hash_images(directory_.get())->size(), kImages + 2U);
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 20 * kImages) << "pages of memory";
}

TEST_F(ImageTest, RefusesAManifestThatItCannotRead) {
  for (const char* text : {"", "{}", "[]", "{\"format\":2}", "{\"format\":\"1\"}", "null", "\xff"})
    EXPECT_EQ(parse_manifest(text).error().reason, "image_damaged") << text;
}

TEST_F(ImageTest, RefusesAChangedImage) {
  folder_.write("image/core-1.img", "two");
  EXPECT_EQ(refused(), "image_damaged: core-1.img is not as it was when it was made");
  EXPECT_EQ(refused(ImageCheck::kManifest), "");
}

TEST_F(ImageTest, RefusesAnImageMoreOrLess) {
  folder_.write("image/core-2.img", "");
  EXPECT_EQ(refused(), "image_damaged: core-2.img is not in the manifest");
  ::unlink(folder_.path_to("image/core-2.img").c_str());
  ::unlink(folder_.path_to("image/core-1.img").c_str());
  EXPECT_EQ(refused(), "image_damaged: core-1.img is missing");
}

TEST_F(ImageTest, NamesEveryDamagedImageAndCountsWhatItHashes) {
  folder_.write("image/core-1.img", "two");
  folder_.write("image/pages-1.img", "short");
  folder_.write("image/core-2.img", "");
  const auto damage = [&](ImageCheck check, std::uint64_t* bytes = nullptr) {
    return damage_of(directory_.get(), manifest_, ::geteuid(), check,
                     [bytes](std::uint64_t read) {
                       if (bytes != nullptr) *bytes += read;
                     })
        .value();
  };
  std::uint64_t bytes = 0;
  EXPECT_THAT(damage(ImageCheck::kAll, &bytes),
              testing::ElementsAre("core-1.img is not as it was when it was made",
                                   "core-2.img is not in the manifest",
                                   "pages-1.img is not as it was when it was made"));
  EXPECT_EQ(bytes, 8U);
  bytes = 0;
  EXPECT_THAT(damage(ImageCheck::kSizes, &bytes),
              testing::ElementsAre("core-2.img is not in the manifest",
                                   "pages-1.img is not as it was when it was made"))
      << "core-1.img has its size";
  EXPECT_EQ(bytes, 0U);
}

TEST_F(ImageTest, FollowsNoLinkAndDoesNotBlockOnAPipe) {
  const std::string image = folder_.path_to("image/core-1.img");
  folder_.write("elsewhere", "one");
  ::unlink(image.c_str());
  ASSERT_EQ(::symlink("../elsewhere", image.c_str()), 0);
  EXPECT_EQ(refused().substr(0, 13), "image_damaged");
  ::unlink(image.c_str());
  ASSERT_EQ(::mkfifo(image.c_str(), 0600), 0);
  EXPECT_EQ(refused(), "image_damaged: core-1.img is not a file of the job's owner");
  const std::string manifest = folder_.path_to("image/manifest.json");
  ::unlink(manifest.c_str());
  ASSERT_EQ(::symlink("../elsewhere", manifest.c_str()), 0);
  EXPECT_EQ(refused(), "image_damaged: there is no manifest of the job's owner");
}

// In a directory that others can write, a folder of that name could be another user's.
TEST_F(ImageTest, RefusesAFolderThatOthersCanEnterOrOwn) {
  ::chmod(folder_.path_to("image").c_str(), 0750);
  EXPECT_NE(refused().find("only the job's owner can enter"), std::string::npos);
  ::chmod(folder_.path_to("image").c_str(), 0700);
  const auto checked = check_image(directory_.get(), ::geteuid() + 1, ImageCheck::kManifest);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().detail.find("only the job's owner can enter"), std::string::npos);
}

TEST_F(ImageTest, SaysWhatTheNodeLacks) {
  const Machine& made = manifest_.machine;
  EXPECT_FALSE(mismatch(manifest_, made, "criu"));
  EXPECT_EQ(mismatch(manifest_, made, "other")->reason, "other_engine");
  Machine here = made;
  here.node = "n2";
  here.cpu_flags = {"b", "a", "c"};
  EXPECT_FALSE(mismatch(manifest_, here, "criu"));
  here.cpu_flags = {"a"};
  EXPECT_EQ(mismatch(manifest_, here, "criu")->detail,
            "the image is of a m; this node's processor lacks b");
  here = made;
  here.node = "n2";
  manifest_.node_only = "/tmp/x is on a file system of its own";
  EXPECT_EQ(mismatch(manifest_, here, "criu")->reason, "other_node");
  EXPECT_FALSE(mismatch(manifest_, made, "criu"));
}

TEST(MachineTest, IsKnown) {
  const Machine here = this_machine();
  EXPECT_FALSE(here.kernel.empty());
  EXPECT_FALSE(here.cpu_flags.empty());
}

}  // namespace
}  // namespace scriptorium::checkpoint

#include "core/plugin/loader.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "core/base/file.h"
#include "core/plugin/call_within.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kPlugins = SCRIPTORIUM_TEST_PLUGINS;
const std::string kSound = SCRIPTORIUM_SOUND_PLUGINS;

class PluginLoaderTest : public ::testing::Test {
 protected:
  PluginLoaderTest() { ::umask(022); }

  // Why a plugin of the test's own folder is refused; "loaded" if it is not.
  static std::string refusal(const std::string& name) {
    return why(PluginLoader({kPlugins}).load(name));
  }
  std::string own_refusal(const std::string& name) const {
    return why(PluginLoader({own_.path()}).load(name));
  }
  static std::string why(const Result<LoadedPlugin>& plugin) {
    if (plugin) return "loaded";
    EXPECT_EQ(plugin.error().kind(), ErrorKind::kInvalidConfig);
    return plugin.error().message();
  }
  static std::string bytes_of(const std::string& name) {
    return *read_file(kSound + "/" + name + ".so");
  }

  Result<std::unique_ptr<Sink>> create(const std::string& name,
                                       std::chrono::milliseconds limit = kFactoryTimeLimit) {
    const auto plugin = PluginLoader({kPlugins, kSound}).load(name);
    if (!plugin) return plugin.error();
    Table table;
    table.path = "sink.test";
    return create_sink(*plugin, table, context_, limit);
  }

  test::TempDir own_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  PluginContext context_{.name = "test", .cluster = "lab", .log = log_, .clock = clock_};
};

TEST_F(PluginLoaderTest, LoadsASoundPluginAndMakesItsInstance) {
  PluginLoader loader({own_.path(), kSound});
  const auto plugin = loader.load("good");
  ASSERT_TRUE(plugin) << plugin.error().message();
  EXPECT_EQ(plugin->file, kSound + "/good.so");
  EXPECT_STREQ(plugin->descriptor->name, "good");
  EXPECT_TRUE(create("good"));
  // Asked again it is the same one.
  EXPECT_EQ(loader.load("good")->descriptor, plugin->descriptor);
  EXPECT_FALSE(call_hung());
}

TEST_F(PluginLoaderTest, TheFirstDirectoryWins) {
  own_.write("good.so", bytes_of("good"));
  EXPECT_EQ(PluginLoader({own_.path(), kSound}).load("good")->file, own_.path_to("good.so"));
}

TEST_F(PluginLoaderTest, NamesThePlacesAndTheNearestNameIfNoFileIsThere) {
  own_.write("good.so", bytes_of("good"));
  EXPECT_THAT(own_refusal("gooid"), AllOf(HasSubstr("plugin \"gooid\": found only good"),
                                          HasSubstr("needed gooid.so in " + own_.path()),
                                          HasSubstr("did you mean \"good\"?"),
                                          HasSubstr("install the plugin or set plugin_dirs")));
  EXPECT_THAT(why(PluginLoader({own_.path_to("nowhere")}).load("good")),
              HasSubstr("found no plugin at all"));
}

TEST_F(PluginLoaderTest, RefusesANameThatLeavesTheDirectory) {
  own_.write("good.so", bytes_of("good"));
  own_.make_directory("below");
  EXPECT_THAT(why(PluginLoader({own_.path_to("below")}).load("../good")),
              HasSubstr("a name with other characters"));
  EXPECT_THAT(own_refusal(""), HasSubstr("a name with other characters"));
}

TEST_F(PluginLoaderTest, RefusesALibraryWithoutDescriptor) {
  EXPECT_THAT(
      refusal("no_descriptor"),
      AllOf(StartsWith(kPlugins + "/no_descriptor.so: found no symbol scriptorium_plugin"),
            HasSubstr("needed a plugin's descriptor"), HasSubstr("scriptorium_add_plugin()")));
}

TEST_F(PluginLoaderTest, RefusesAnOldAbiWithoutReadingOn) {
  EXPECT_THAT(refusal("old_abi"),
              AllOf(StartsWith(kPlugins + "/old_abi.so: found plugin ABI 0"),
                    HasSubstr("needed plugin ABI " + std::to_string(kPluginAbiVersion)),
                    HasSubstr("rebuild the plugin")));
}

TEST_F(PluginLoaderTest, RefusesANewerAbi) {
  EXPECT_THAT(
      refusal("new_abi"),
      AllOf(HasSubstr("new_abi.so: found plugin ABI " + std::to_string(kPluginAbiVersion + 1)),
            HasSubstr("needed plugin ABI " + std::to_string(kPluginAbiVersion)),
            HasSubstr("install the Scriptorium that the plugin was made for")));
}

TEST_F(PluginLoaderTest, RefusesADescriptorOfAnotherSize) {
  EXPECT_THAT(refusal("wrong_size"),
              AllOf(HasSubstr("wrong_size.so: found a descriptor of " +
                              std::to_string(sizeof(PluginDescriptor) + 8) + " bytes"),
                    HasSubstr("needed " + std::to_string(sizeof(PluginDescriptor)) + " bytes"),
                    HasSubstr("rebuild the plugin")));
}

TEST_F(PluginLoaderTest, RefusesAnotherBuildStamp) {
  EXPECT_THAT(refusal("wrong_stamp"),
              AllOf(HasSubstr("wrong_stamp.so: found build stamp gcc-1.2.3/cxx98/0123456789abcdef"),
                    HasSubstr("needed build stamp " SCRIPTORIUM_BUILD_STAMP),
                    HasSubstr("rebuild the plugin")));
}

TEST_F(PluginLoaderTest, RefusesAnUndefinedSymbolByItsName) {
  EXPECT_THAT(
      refusal("undefined_symbol"),
      AllOf(StartsWith(kPlugins + "/undefined_symbol.so: found a library that does not load ("),
            HasSubstr("missing_everywhere"),
            HasSubstr("needed one whose symbols and libraries all exist"),
            HasSubstr("install what is missing")));
}

TEST_F(PluginLoaderTest, RefusesAPluginThatNamesItselfOtherwise) {
  EXPECT_THAT(refusal("misnamed"),
              AllOf(HasSubstr("misnamed.so: found a plugin that names itself \"somebody_else\""),
                    HasSubstr("needed \"misnamed\""), HasSubstr("rename the file")));
}

TEST_F(PluginLoaderTest, RefusesAKindThatDoesNotMatchItsFactory) {
  EXPECT_THAT(refusal("wrong_kind"),
              AllOf(HasSubstr("wrong_kind.so: found create_sink in a plugin of kind spool adapter"),
                    HasSubstr("needed exactly the factory of its kind"), HasSubstr("set .kind")));
  EXPECT_THAT(refusal("no_factory"),
              HasSubstr("no_factory.so: found no factory in a plugin of kind sink"));
  EXPECT_THAT(refusal("unknown_kind"),
              AllOf(HasSubstr("unknown_kind.so: found plugin kind 9"), HasSubstr("needed 1 (sink)"),
                    HasSubstr("correct .kind")));
  EXPECT_THAT(refusal("no_options"),
              AllOf(HasSubstr("no_options.so: found a descriptor without options"),
                    HasSubstr("needed all three")));
}

TEST_F(PluginLoaderTest, RefusesALibraryThatWasCutAnywhere) {
  const std::string whole = bytes_of("good");
  for (std::size_t i = 0; i < 64; ++i) {
    own_.write("good.so", whole.substr(0, whole.size() * i / 64));
    EXPECT_THAT(own_refusal("good"), StartsWith(own_.path_to("good.so") + ": found "));
  }
  own_.write("good.so", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(own_refusal("good"),
              AllOf(HasSubstr("found a truncated library of " + std::to_string(whole.size() - 1) +
                              " bytes"),
                    HasSubstr("needed at least " + std::to_string(whole.size()) + " bytes"),
                    HasSubstr("build or install the plugin again")));
}

TEST_F(PluginLoaderTest, RefusesHeadersThatPromiseMoreThanAllNumbers) {
  std::string bytes = bytes_of("good");
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes.data(), sizeof header);
  ElfW(Phdr) segment;
  std::memcpy(&segment, bytes.data() + header.e_phoff, sizeof segment);
  segment.p_offset = ~ElfW(Off){0} - 4;
  segment.p_filesz = 8;
  std::memcpy(bytes.data() + header.e_phoff, &segment, sizeof segment);
  own_.write("good.so", bytes);
  EXPECT_THAT(own_refusal("good"),
              AllOf(HasSubstr("found a truncated library"), HasSubstr("needed intact headers")));
}

TEST_F(PluginLoaderTest, RefusesWhatIsNoLibraryAtAll) {
  own_.write("good.so", std::string(4096, 'x'));
  EXPECT_THAT(own_refusal("good"),
              HasSubstr("found a file that is not an ELF library; needed a shared library"));
  std::filesystem::remove(own_.path_to("good.so"));
  own_.make_directory("good.so");
  EXPECT_THAT(own_refusal("good"), HasSubstr("found something that is not a regular file"));
  std::filesystem::remove(own_.path_to("good.so"));
  ASSERT_EQ(::mkfifo(own_.path_to("good.so").c_str(), 0600), 0);
  EXPECT_THAT(own_refusal("good"), HasSubstr("found something that is not a regular file"));
  std::filesystem::remove(own_.path_to("good.so"));
  std::filesystem::create_symlink("nowhere.so", own_.path_to("good.so"));
  EXPECT_THAT(own_refusal("good"), AllOf(HasSubstr("found a file that cannot be reached"),
                                         HasSubstr("repair the link")));
}

TEST_F(PluginLoaderTest, RefusesALibraryForAnotherMachine) {
  std::string bytes = bytes_of("good");
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_machine = EM_S390;
  std::memcpy(bytes.data(), &header, sizeof header);
  own_.write("good.so", bytes);
  EXPECT_THAT(own_refusal("good"),
              AllOf(HasSubstr("found a library for another machine"), HasSubstr("machine 22"),
                    HasSubstr("needed class "), HasSubstr("build the plugin on this machine")));
}

TEST_F(PluginLoaderTest, RefusesAFileThatEveryoneMayWrite) {
  const std::string file = own_.write("good.so", bytes_of("good"));
  ASSERT_EQ(::chmod(file.c_str(), 0757), 0);
  EXPECT_THAT(
      own_refusal("good"),
      AllOf(StartsWith(file + ": found a file that everyone may write (" + file + ", mode 0757)"),
            HasSubstr("needed a file that only root or the daemon's user may write"),
            HasSubstr("chmod o-w " + file)));
}

TEST_F(PluginLoaderTest, RefusesAFolderThatEveryoneMayWriteEvenIfItIsSticky) {
  const std::string file = own_.write("open/good.so", bytes_of("good"));
  const std::string folder = own_.path_to("open");
  for (const mode_t mode : {0777U, 01777U}) {
    ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
    EXPECT_THAT(why(PluginLoader({folder}).load("good")),
                AllOf(StartsWith(file + ": found a folder that everyone may write (" + folder),
                      HasSubstr("chmod o-w " + folder)));
  }
}

TEST_F(PluginLoaderTest, RefusesAFileAndAFolderThatAGroupMayWrite) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can give a folder to a group that is not the user's own";
  const std::string file = own_.write("open/good.so", bytes_of("good"));
  const std::string folder = own_.path_to("open");
  for (const std::string& place : {file, folder, own_.path()}) {
    struct stat before{};
    ASSERT_EQ(::stat(place.c_str(), &before), 0);
    ASSERT_EQ(::chown(place.c_str(), 0, 54321), 0);
    ASSERT_EQ(::chmod(place.c_str(), before.st_mode | S_IWGRP), 0);
    EXPECT_THAT(why(PluginLoader({folder}).load("good")),
                AllOf(HasSubstr("that group 54321 may write (" + place + ", mode "),
                      HasSubstr("chmod g-w " + place)));
    ASSERT_EQ(::chmod(place.c_str(), before.st_mode), 0);
  }
  EXPECT_EQ(why(PluginLoader({folder}).load("good")), "loaded");
}

TEST_F(PluginLoaderTest, RefusesAFolderFurtherUpThatOthersMayWriteUnlessItIsSticky) {
  own_.write("open/inner/good.so", bytes_of("good"));
  const std::string open = own_.path_to("open");
  PluginLoader loader({own_.path_to("open/inner")});
  ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
  EXPECT_THAT(why(loader.load("good")),
              AllOf(HasSubstr("a folder that everyone may write (" + open + ", mode 0777)"),
                    HasSubstr("chmod o-w " + open)));
  // As /tmp: others can add to it, but not take away or rename what is ours.
  ASSERT_EQ(::chmod(open.c_str(), 01777), 0);
  EXPECT_EQ(why(loader.load("good")), "loaded");
}

TEST_F(PluginLoaderTest, RefusesAFolderFurtherUpThatBelongsToAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder to another user";
  own_.write("theirs/inner/good.so", bytes_of("good"));
  ASSERT_EQ(::chown(own_.path_to("theirs").c_str(), 12345, 12345), 0);
  EXPECT_THAT(why(PluginLoader({own_.path_to("theirs/inner")}).load("good")),
              HasSubstr("a folder that belongs to uid 12345"));
}

TEST_F(PluginLoaderTest, LooksAtEachFolderOnTheWayOfALink) {
  own_.write("real/good.so", bytes_of("good"));
  own_.make_directory("open/between");
  std::filesystem::create_directory_symlink(own_.path_to("real"), own_.path_to("open/between/on"));
  std::filesystem::create_directory_symlink("open/between/on", own_.path_to("plugins"));
  PluginLoader loader({own_.path_to("plugins")});
  ASSERT_EQ(::chmod(own_.path_to("open").c_str(), 0777), 0);
  EXPECT_THAT(why(loader.load("good")),
              HasSubstr("a folder that everyone may write (" + own_.path_to("open")));
  ASSERT_EQ(::chmod(own_.path_to("open").c_str(), 0755), 0);
  EXPECT_EQ(why(loader.load("good")), "loaded");
}

TEST_F(PluginLoaderTest, LooksAtBothEndsOfASymbolicLink) {
  const std::string target = own_.write("open/real.so", bytes_of("good"));
  own_.make_directory("safe");
  std::filesystem::create_symlink(target, own_.path_to("safe/good.so"));
  EXPECT_EQ(why(PluginLoader({own_.path_to("safe")}).load("good")), "loaded");
  // The file's own folder decides who may put another one in its place ...
  ASSERT_EQ(::chmod(own_.path_to("open").c_str(), 0777), 0);
  EXPECT_THAT(why(PluginLoader({own_.path_to("safe")}).load("good")),
              HasSubstr("a folder that everyone may write (" + own_.path_to("open")));
  // ... and the link's folder who may point the link elsewhere.
  ASSERT_EQ(::chmod(own_.path_to("open").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(own_.path_to("safe").c_str(), 0777), 0);
  EXPECT_THAT(why(PluginLoader({own_.path_to("safe")}).load("good")),
              HasSubstr("a folder that everyone may write (" + own_.path_to("safe")));
}

TEST_F(PluginLoaderTest, RefusesAFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const std::string file = own_.write("good.so", bytes_of("good"));
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  EXPECT_THAT(own_refusal("good"),
              AllOf(HasSubstr("found a file that belongs to uid 12345"),
                    HasSubstr("needed one of root or of uid 0"), HasSubstr("chown root")));
}

TEST_F(PluginLoaderTest, RunsNothingOfAFileThatFailsTheFileChecks) {
  constexpr const char* kSign = "SCRIPTORIUM_TEST_NOISY_WAS_LOADED";
  const std::string file = own_.write("noisy.so", bytes_of("noisy"));
  ASSERT_EQ(::chmod(file.c_str(), 0777), 0);
  EXPECT_NE(own_refusal("noisy"), "loaded");
  EXPECT_EQ(std::getenv(kSign), nullptr);
  ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  EXPECT_EQ(own_refusal("noisy"), "loaded");
  EXPECT_STREQ(std::getenv(kSign), "yes");
}

TEST_F(PluginLoaderTest, ListsEveryLibraryLoadableOrNotByName) {
  own_.write("good.so", bytes_of("good"));
  own_.write("broken.so", "x");
  own_.write(".hidden.so", "x");
  own_.write("readme.txt", "x");
  own_.write("second/good.so", bytes_of("good"));
  auto listed = PluginLoader({own_.path(), own_.path_to("nowhere"), own_.path_to("second")}).list();
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_EQ(listed[0].name, "broken");
  EXPECT_FALSE(listed[0].plugin);
  EXPECT_EQ(listed[1].file, own_.path_to("good.so"));
  EXPECT_TRUE(listed[1].plugin);
  EXPECT_EQ(listed[2].file, own_.path_to("second/good.so"));
  EXPECT_THAT(why(listed[2].plugin),
              HasSubstr("it is not used, as " + own_.path_to("good.so") + " comes first"));
}

TEST_F(PluginLoaderTest, TurnsWhatAFactoryThrowsIntoARefusal) {
  auto sink = create("throwing_factory");
  ASSERT_FALSE(sink);
  EXPECT_EQ(sink.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(
      sink.error().message(),
      AllOf(StartsWith(
                kPlugins +
                "/throwing_factory.so: found a factory that throws for sink.test (no such luck)"),
            HasSubstr("needed an instance or an error"),
            HasSubstr("report it to the plugin's author")));
  EXPECT_THAT(create("odd_throwing_factory").error().message(),
              HasSubstr("throws for sink.test (something that is not a std::exception)"));
}

TEST_F(PluginLoaderTest, RefusesAFactoryThatGivesNothing) {
  EXPECT_THAT(create("null_factory").error().message(),
              AllOf(StartsWith(kPlugins +
                               "/null_factory.so: found a factory that returns null for sink.test"),
                    HasSubstr("needed an instance or an error"), HasSubstr("report it")));
}

TEST_F(PluginLoaderTest, PassesAFactorysOwnWordsOn) {
  const auto sink = create("refusing_factory");
  ASSERT_FALSE(sink);
  EXPECT_EQ(sink.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_EQ(sink.error().message(),
            kPlugins + "/refusing_factory.so: the moon is in the wrong house");
}

TEST_F(PluginLoaderTest, RefusesASinkWhereASourceIsNeeded) {
  const auto plugin = PluginLoader({kSound}).load("good");
  ASSERT_TRUE(plugin);
  Table table;
  table.path = "source.test";
  const PluginContext context{.name = "test", .cluster = "lab", .log = log_, .clock = clock_};
  EXPECT_THAT(create_spool_adapter(*plugin, table, context).error().message(),
              AllOf(HasSubstr("good.so: found a plugin of kind sink"),
                    HasSubstr("needed one of kind spool adapter for source.test")));
  EXPECT_THAT(create_free_source(*plugin, table, context).error().message(),
              HasSubstr("needed one of kind free source"));
}

// In a process of its own, as a hanging thread can only be left behind.
TEST_F(PluginLoaderTest, GivesUpAFactoryThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto sink = create("hanging_factory", std::chrono::milliseconds{200});
        std::fprintf(stderr, "%s; hung %d\n", sink ? "made" : sink.error().message().c_str(),
                     static_cast<int>(call_hung()));
        ::_exit(7);
      },
      ::testing::ExitedWithCode(7),
      "hanging_factory.so: found a factory that did not return within 200 ms for sink.test; needed "
      "one that makes its instance "
      "at "
      "once, without the network; report it to the plugin's author; hung 1");
}

TEST_F(PluginLoaderTest, LooksForPluginsBesideTheCommandFirst) {
  const auto directories = default_plugin_directories();
  ASSERT_GE(directories.size(), 2U);
  const auto self = std::filesystem::canonical("/proc/self/exe");
  EXPECT_EQ(directories[0], (self.parent_path() / "plugins").string());
  EXPECT_EQ(directories.back(),
            (self.parent_path().parent_path() / "lib/scriptorium/plugins").string());
}

}  // namespace
}  // namespace scriptorium

#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace scriptorium::test {

// A directory of the test's own, removed with all that is in it. Under $TMPDIR, or /tmp.
class TempDir {
 public:
  TempDir() {
    const char* base = ::getenv("TMPDIR");
    std::string pattern =
        std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/scriptorium-test.XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("cannot make a temporary directory: " + pattern);
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::permissions(path_, fs::perms::owner_all, fs::perm_options::replace, error);
    for (fs::recursive_directory_iterator entry(path_, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;  // what cannot be opened is reported by the next step
      if (entry->symlink_status(ignored).type() == fs::file_type::directory) {
        fs::permissions(entry->path(), fs::perms::owner_all, fs::perm_options::replace, ignored);
      }
    }
    fs::remove_all(path_, error);  // a left-over directory in /tmp fails no test
  }

  const std::string& path() const noexcept { return path_; }
  // The absolute path of something in here: path_to("a/b").
  std::string path_to(std::string_view relative) const {
    return path_ + "/" + std::string(relative);
  }

  // Writes a file, making the directories above it; returns its absolute path.
  std::string write(std::string_view relative, std::string_view bytes) const {
    const std::string path = path_to(relative);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + path);
    return path;
  }
  // Makes a directory, and those above it; returns its absolute path.
  std::string make_directory(std::string_view relative) const {
    const std::string path = path_to(relative);
    std::filesystem::create_directories(path);
    return path;
  }
  std::string read(std::string_view relative) const {
    const std::string path = path_to(relative);
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  bool exists(std::string_view relative) const {
    std::error_code error;
    return std::filesystem::symlink_status(path_to(relative), error).type() !=
           std::filesystem::file_type::not_found;
  }

 private:
  std::string path_;
};

}  // namespace scriptorium::test

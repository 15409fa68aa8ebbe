// spool-trace: plays a recorded trace of pbs_server's spool as system calls: the same creations,
// writes, closes, links and unlinks in the same order and at the same pace. For system tests;
// `--help` lists the options.
//
// A trace line is "HH:MM:SS.micros FOLDER/NAME MASK[|ISDIR] [size=N ...]", as recorded by inotify.
// Contents are not in it: a script or record comes from the fixtures where one of this name (and,
// for a script, of this size) was kept, and else is made up from a recorded one. What stood before
// the trace begins is written by `prepare`, the rest by `play`.
//
// The manifest has one line a script: PATH JOB-ID SIZE SHA256 LIFE-IN-US CHUNKS; a life of -1 means
// that it stays.

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/sha256.h"

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = 65536;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "spool-trace: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

[[noreturn]] void usage(int status) {
  std::fprintf(
      status == 0 ? stdout : stderr,
      "usage: spool-trace prepare|play TRACE HOME --fixtures FOLDER [--manifest FILE] [--speed F] "
      "[--max-gap-ms MS]\n"
      "  HOME           the server's home; server_priv/jobs and the rest are made below it\n"
      "  --fixtures     where recorded scripts and records lie, at any depth\n"
      "  --manifest     (play) gets a line for each script that the trace tells of\n"
      "  --speed        2 = twice as fast; the default is the pace of the trace\n"
      "  --max-gap-ms   no pause is longer than that (before --speed); the default is none\n");
  std::exit(status);
}

struct Options {
  std::string command;
  std::string trace;
  std::string home;
  std::string fixtures;
  std::string manifest;
  double speed = 1;
  double max_gap = 1e9;  // seconds
};

struct Event {
  double time = 0;
  std::string path;  // below the home
  std::string mask;
  bool directory = false;
  std::size_t size = 0;
};

std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) fail("read " + file.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<Event> read_trace(const std::string& file) {
  std::ifstream in(file);
  if (!in) fail("read " + file);
  std::vector<Event> events;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string when;
    Event event;
    if (!(words >> when >> event.path >> event.mask) || when.size() < 9) continue;
    event.time = std::atoi(when.substr(0, 2).c_str()) * 3600.0 +
                 std::atoi(when.substr(3, 2).c_str()) * 60.0 + std::atof(when.substr(6).c_str());
    if (const auto bar = event.mask.find('|'); bar != std::string::npos) {
      event.directory = true;
      event.mask.resize(bar);
    }
    std::string size;
    if (words >> size && size.starts_with("size="))
      event.size = static_cast<std::size_t>(std::atoll(size.c_str() + 5));
    // One recorder named the folders from the server's home, another one from server_priv.
    if (event.path.starts_with("jobs/") || event.path.starts_with("arrays/"))
      event.path = "server_priv/" + event.path;
    if (!event.path.ends_with('/')) events.push_back(std::move(event));
  }
  return events;
}

std::string suffix_of(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(dot + 1);
}
std::string without_suffix(const std::string& path) { return path.substr(0, path.rfind('.')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void replace_element(std::string& text, const std::string& element, const std::string& value) {
  const std::string open = "<" + element + ">";
  const auto from = text.find(open);
  const auto to = text.find("</" + element + ">");
  if (from != std::string::npos && to != std::string::npos)
    text.replace(from + open.size(), to - from - open.size(), value);
}

// What a trace tells about one script.
struct Script {
  std::size_t chunks = 0;
  std::size_t size = 0;
  bool stood_before = false;
  std::string bytes;
  double closed = 0;
  double life = -1;
};

class Player {
 public:
  explicit Player(Options options)
      : options_(std::move(options)), events_(read_trace(options_.trace)) {
    binary_ = name_of(options_.trace).starts_with("v4-");
    index_fixtures();
    survey();
  }

  // What stood in the spool before the trace begins.
  void prepare() {
    make_folders();
    for (const std::string& path : stood_before_) write_whole(path, content_of(path));
  }

  void play() {
    make_folders();
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (i > 0)
        pause(std::min(options_.max_gap, events_[i].time - events_[i - 1].time) / options_.speed);
      step(i);
    }
    for (const auto& [path, fd] : open_) ::close(fd);
    write_manifest();
  }

 private:
  void index_fixtures() {
    for (const auto& entry : fs::recursive_directory_iterator(options_.fixtures)) {
      const bool of_version =
          (entry.path().string().find("torque-4.2.10") != std::string::npos) == binary_;
      if (!entry.is_regular_file() || !of_version ||
          entry.path().string().find("mom_priv") != std::string::npos)
        continue;
      if (entry.file_size() > 0) fixtures_[entry.path().filename().string()] = entry.path();
    }
  }

  static bool is_task(const std::string& stem) {
    const auto at = stem.find_first_not_of("0123456789");
    return at != std::string::npos && stem[at] == '-';
  }

  void survey() {
    std::set<std::string> seen;
    std::set<std::string> made;
    for (const Event& event : events_) {
      if (event.directory || !event.path.starts_with("server_priv/jobs/")) continue;
      const std::string suffix = suffix_of(event.path);
      const bool first = seen.insert(event.path).second;
      if (first && event.mask == "CREATE") made.insert(without_suffix(event.path));
      if (first && event.mask != "CREATE" && suffix != "JC") stood_before_.insert(event.path);
      if (suffix == "TA") arrays_.insert(without_suffix(event.path));
      if (suffix != "SC") continue;
      Script& script = scripts_[event.path];
      if (event.mask == "CLOSE_WRITE") ++script.chunks;
      if (event.mask != "DELETE") script.size = std::max(script.size, event.size);
    }
    // A job that stood there had a script, though nothing may have happened to it.
    for (const std::string& path : std::set<std::string>(stood_before_)) {
      const std::string stem = without_suffix(path);
      if (is_task(name_of(stem))) continue;
      const std::string script = stem + ".SC";
      if (!scripts_.contains(script)) scripts_[script].size = 0;
      if (stood_before_.contains(script) || !seen.contains(script)) stood_before_.insert(script);
      if (!stood_before_.contains(stem + ".JB") && !stood_before_.contains(stem + ".TA") &&
          !made.contains(stem + ".JB"))
        stood_before_.insert(stem + (arrays_.contains(stem) ? ".TA" : ".JB"));
    }
    for (auto& [path, script] : scripts_) {
      script.stood_before = stood_before_.contains(path);
      make_script(path, script);
    }
  }

  void make_script(const std::string& path, Script& script) {
    const auto fixture = fixtures_.find(name_of(path));
    if (fixture != fixtures_.end() &&
        (script.size == 0 || fs::file_size(fixture->second) == script.size)) {
      script.bytes = read_all(fixture->second);
      script.size = script.bytes.size();
      return;
    }
    constexpr std::size_t kUsual = 87;
    if (script.size == 0) script.size = kUsual;
    // Its name first, so that no two of them are the same, however short.
    std::string text = "#" + name_of(path) + "\n#PBS -l walltime=1\n";
    while (text.size() < script.size) text += "echo \xc3\xa9 " + std::to_string(text.size()) + "\n";
    text.resize(script.size);
    script.bytes = std::move(text);
  }

  bool is_interactive(const std::string& stem) const {
    return !is_task(name_of(stem)) && !scripts_.contains(stem + ".SC");
  }

  // The record of a stem as the server would write it.
  std::string record_of(const std::string& stem) const {
    const std::string name = name_of(stem);
    const bool array = arrays_.contains(stem);
    if (const auto own = fixtures_.find(name + (array ? ".TA" : ".JB")); own != fixtures_.end())
      return read_all(own->second);
    const std::string model =
        binary_ ? (array ? "2.pbshead.cluster.test.TA" : "0.pbshead.cluster.test.JB")
                : (array ? "2.pbshead.cluster.test.TA" : "65.pbshead.cluster.test.JB");
    std::string text = read_all(fixtures_.at(model));
    const std::string id = job_id(stem);
    if (binary_) {
      constexpr std::size_t kId = 40;
      constexpr std::size_t kPrefix = 1087;
      std::fill(text.begin() + kId, text.begin() + kPrefix + 62, '\0');
      std::copy(id.begin(), id.end(), text.begin() + kId);
      std::copy(name.begin(), name.end(), text.begin() + kPrefix);
      return text;
    }
    replace_element(text, "jobid", id);
    replace_element(text, "fileprefix", name);
    if (is_interactive(stem)) {
      const auto end = text.find("</attributes>");
      text.insert(end, "<interactive flags=\"1\">41173</interactive>\n");
    }
    return text;
  }

  std::string job_id(const std::string& stem) const {
    std::string name = name_of(stem);
    const auto digits = name.find_first_not_of("0123456789");
    if (digits == std::string::npos) return name;
    if (arrays_.contains(stem)) return name.insert(digits, "[]");
    if (name[digits] != '-') return name;
    name[digits] = '[';
    return name.insert(name.find('.'), "]");
  }

  std::string content_of(const std::string& path) const {
    const std::string suffix = suffix_of(path);
    if (suffix == "SC") {
      const auto script = scripts_.find(path);
      return script != scripts_.end() ? script->second.bytes
                                      : "#!/bin/sh\n: " + name_of(path) + "\n";
    }
    if (suffix == "JB" || suffix == "TA" || suffix == "JC") return record_of(without_suffix(path));
    return "something else\n";
  }

  std::string full(const std::string& path) const { return options_.home + "/" + path; }

  void make_folders() const {
    for (const char* folder : {"server_priv/jobs", "server_priv/arrays", "mom_priv/jobs"}) {
      fs::create_directories(full(folder));
      if (std::string_view(folder).starts_with("mom")) continue;
      for (char digit = '0'; digit <= '9'; ++digit)
        fs::create_directories(full(folder) + "/" + digit);
    }
    for (const Event& event : events_)
      fs::create_directories(fs::path(full(event.path)).parent_path());
  }

  static void write_fd(int fd, std::string_view bytes, const std::string& path) {
    if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      fail("write " + path);
  }

  void write_whole(const std::string& path, const std::string& bytes) const {
    const int fd = ::open(full(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) fail("create " + path);
    write_fd(fd, bytes, path);
    ::close(fd);
  }

  static void pause(double seconds) {
    if (seconds <= 0) return;
    timespec left{};
    left.tv_sec = static_cast<time_t>(seconds);
    left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }

  static double now() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
  }

  // How the file that is opened at `i` is closed: "CLOSE_WRITE", "CLOSE_NOWRITE", or "" if the
  // trace ends before.
  std::string closing(std::size_t i) const {
    for (std::size_t k = i + 1; k < events_.size(); ++k) {
      if (events_[k].path == events_[i].path && events_[k].mask.starts_with("CLOSE"))
        return events_[k].mask;
    }
    return {};
  }

  void step(std::size_t i) {
    const Event& event = events_[i];
    const std::string path = full(event.path);
    if (event.directory) {
      if (event.mask == "CREATE") ::mkdir(path.c_str(), 0700);
      if (event.mask == "DELETE") fs::remove_all(path);
      return;
    }
    if (event.mask == "CREATE") return create(i);
    if (event.mask == "OPEN") return open(i);
    if (event.mask == "MODIFY") return modify(event);
    if (event.mask.starts_with("CLOSE")) return close(event);
    if (event.mask == "DELETE") return remove(event);
    if (event.mask == "MOVED_FROM") moved_from_ = path;
    if (event.mask == "MOVED_TO" && !moved_from_.empty())
      ::rename(std::exchange(moved_from_, {}).c_str(), path.c_str());
  }

  void create(std::size_t i) {
    const Event& event = events_[i];
    const std::string suffix = suffix_of(event.path);
    const std::string new_record = without_suffix(event.path) + ".JC";
    // The dance: a record that was just closed is linked into its place.
    if ((suffix == "JB" || suffix == "TA") && !open_.contains(new_record) &&
        ::link(full(new_record).c_str(), full(event.path).c_str()) == 0)
      return;
    const int fd =
        ::open(full(event.path).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) fail("create " + event.path);
    keep_open(event.path, fd);
  }

  void open(std::size_t i) {
    const Event& event = events_[i];
    if (open_.contains(event.path)) return;  // by its creation
    const std::string how = closing(i);
    if (how.empty()) return;
    const bool script = suffix_of(event.path) == "SC";
    const int flags = how == "CLOSE_NOWRITE" ? O_RDONLY : (script ? O_WRONLY | O_APPEND : O_WRONLY);
    const int fd = ::open(full(event.path).c_str(), flags | O_CLOEXEC);
    if (fd >= 0) keep_open(event.path, fd);
  }

  void keep_open(const std::string& path, int fd) {
    if (const auto old = open_.find(path); old != open_.end()) ::close(old->second);
    open_[path] = fd;
    written_.erase(path);
  }

  void modify(const Event& event) {
    const auto found = open_.find(event.path);
    if (found == open_.end() || !written_.insert(event.path).second) return;
    const auto script = scripts_.find(event.path);
    if (script == scripts_.end())
      return write_fd(found->second, content_of(event.path), event.path);
    struct stat at{};
    if (::fstat(found->second, &at) != 0) fail("stat " + event.path);
    const std::string_view rest =
        std::string_view(script->second.bytes).substr(static_cast<std::size_t>(at.st_size));
    write_fd(found->second, rest.substr(0, kChunk), event.path);
  }

  void close(const Event& event) {
    const auto found = open_.find(event.path);
    if (found == open_.end()) return;
    ::close(found->second);
    open_.erase(found);
    if (const auto script = scripts_.find(event.path);
        script != scripts_.end() && event.mask == "CLOSE_WRITE")
      script->second.closed = now();
  }

  void remove(const Event& event) {
    ::unlink(full(event.path).c_str());
    if (const auto script = scripts_.find(event.path);
        script != scripts_.end() && script->second.closed > 0)
      script->second.life = now() - script->second.closed;
  }

  void write_manifest() const {
    if (options_.manifest.empty()) return;
    std::FILE* out = std::fopen(options_.manifest.c_str(), "w");
    if (out == nullptr) fail("write " + options_.manifest);
    for (const auto& [path, script] : scripts_) {
      std::fprintf(out, "%s %s %zu %s %.0f %zu\n", path.c_str(),
                   job_id_in(record_of(without_suffix(path))).c_str(), script.bytes.size(),
                   scriptorium::sha256_hex(script.bytes).c_str(),
                   script.life < 0 ? -1.0 : script.life * 1e6, script.chunks);
    }
    if (std::fclose(out) != 0) fail("write " + options_.manifest);
  }

  std::string job_id_in(const std::string& record) const {
    if (binary_) return record.c_str() + 40;
    const auto from = record.find("<jobid>") + 7;
    return record.substr(from, record.find("</jobid>") - from);
  }

  const Options options_;
  const std::vector<Event> events_;
  bool binary_ = false;
  std::map<std::string, fs::path> fixtures_;
  std::map<std::string, Script> scripts_;
  std::set<std::string> arrays_;
  std::set<std::string> stood_before_;
  std::map<std::string, int> open_;
  std::set<std::string> written_;  // since it was opened
  std::string moved_from_;
};

Options parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help") usage(0);
    if (!word.starts_with("--")) {
      words.push_back(word);
      continue;
    }
    if (i + 1 >= argc) usage(64);
    const std::string value = argv[++i];
    if (word == "--fixtures") {
      options.fixtures = value;
    } else if (word == "--manifest") {
      options.manifest = value;
    } else if (word == "--speed") {
      options.speed = std::atof(value.c_str());
    } else if (word == "--max-gap-ms") {
      options.max_gap = std::atof(value.c_str()) / 1000;
    } else {
      usage(64);
    }
  }
  if (words.size() != 3 || options.fixtures.empty() || options.speed <= 0 ||
      (words[0] != "prepare" && words[0] != "play"))
    usage(64);
  options.command = words[0];
  options.trace = words[1];
  options.home = words[2];
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = parse(argc, argv);
  const std::string command = options.command;
  Player player(std::move(options));
  if (command == "prepare") {
    player.prepare();
  } else {
    player.play();
  }
  return 0;
}

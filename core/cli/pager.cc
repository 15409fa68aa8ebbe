#include "core/cli/pager.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace scriptorium::cli {
namespace {

// The child's signals are as a shell gives them: the command may have blocked or ignored some.
void reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
}

[[noreturn]] void become_pager(const std::vector<std::string>& words, int input) {
  reset_signals();
  ::dup2(input, STDIN_FILENO);
  // As git does: colours pass, a short text does not stay, and the screen is kept.
  ::setenv("LESS", "FRX", 0);
  // A rule of sudo for this command must not be one for a shell.
  if (std::getenv("SUDO_UID") != nullptr) ::setenv("LESSSECURE", "1", 1);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

std::vector<std::string> pager_words(const char* pager) {
  std::istringstream text(pager == nullptr ? "less -R" : pager);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  if (words.size() == 1 && words.front() == "cat") words.clear();
  return words;
}

Pager::Pager(Console& console)
    : console_(console),
      may_page_(console.owns_process && console.out_is_terminal && console.height > 0 &&
                !pager_words(std::getenv("PAGER")).empty()) {}

Pager::~Pager() { finish(); }

bool Pager::start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  const UniqueFd input(ends[0]);
  pipe_.reset(ends[1]);
  console_.out.flush();
  const auto words = pager_words(std::getenv("PAGER"));
  child_ = ::fork();
  if (child_ == 0) become_pager(words, input.get());
  if (child_ < 0) pipe_.reset();
  return child_ > 0;
}

bool Pager::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(pipe_.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool Pager::write(std::string_view text) {
  if (left_) return false;
  if (!may_page_) {
    console_.out << text;
    return static_cast<bool>(console_.out);
  }
  if (child_ > 0) {
    left_ = !send(text);
    return !left_;
  }
  held_ += text;
  lines_ += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  if (lines_ < console_.height) return true;
  const std::string held = std::move(held_);
  held_.clear();
  may_page_ = start();
  return write(held);
}

void Pager::finish() {
  console_.out << held_ << std::flush;
  held_.clear();
  pipe_.reset();
  if (child_ <= 0) return;
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  may_page_ = false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    console_.err << "scriptorium: $PAGER could not be started\n";
}

}  // namespace scriptorium::cli

// A program that hangs in two threads, for tests/system/test_watch_test.py.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

namespace {

std::mutex mutex;
std::condition_variable never;

[[gnu::noinline]] void wait_for_nobody() {
  std::unique_lock lock(mutex);
  never.wait(lock, [] { return false; });
}

[[gnu::noinline]] void the_other_thread_waits() {
  wait_for_nobody();
  std::puts("");  // not a tail call, so that each function has its frame
}

}  // namespace

int main() {
  std::jthread other(the_other_thread_waits);
  std::puts("both hang");
  std::fflush(stdout);
  wait_for_nobody();
}

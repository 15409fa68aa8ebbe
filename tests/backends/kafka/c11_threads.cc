// ThreadSanitizer knows the threads and locks of POSIX, and not those of C11, which librdkafka
// uses: glibc makes a C11 thread behind the sanitizer's back, and the first malloc() in it ends the
// process. A program that defines these functions itself gives them to librdkafka as well, since
// the executable's names come first; here they are the POSIX ones. Only in programs that are built
// with ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
#define WITH_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER
#endif
#endif
#ifdef WITH_THREAD_SANITIZER

#include <pthread.h>
#include <threads.h>
#include <time.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace {

struct Start {
  thrd_start_t function;
  void* argument;
};

void* run(void* argument) {
  auto* start = static_cast<Start*>(argument);
  const Start own = *start;
  delete start;
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(own.function(own.argument)));
}

// glibc's mtx_t and cnd_t have the size of the POSIX ones, or are larger.
static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t) && sizeof(cnd_t) >= sizeof(pthread_cond_t));
pthread_mutex_t* posix(mtx_t* mutex) { return reinterpret_cast<pthread_mutex_t*>(mutex); }
pthread_cond_t* posix(cnd_t* condition) { return reinterpret_cast<pthread_cond_t*>(condition); }

int answer(int code) {
  switch (code) {
    case 0: return thrd_success;
    case EBUSY: return thrd_busy;
    case ETIMEDOUT: return thrd_timedout;
    case ENOMEM: return thrd_nomem;
    default: return thrd_error;
  }
}

}  // namespace

// librdkafka is not compiled for the sanitizer, which sees of what it does within itself only these
// functions and none of its atomic operations. None of our code runs in its threads: callbacks are
// served by ours.
extern "C" __attribute__((visibility("default"))) const char*
__tsan_default_suppressions() {  // NOLINT
  return "called_from_lib:librdkafka.so\nrace:c11_threads.cc\n";
}

#define FOR_LIBRDKAFKA extern "C" __attribute__((visibility("default")))

FOR_LIBRDKAFKA int thrd_create(thrd_t* thread, thrd_start_t function, void* argument) {
  auto* start = new Start{function, argument};
  const int code = pthread_create(thread, nullptr, run, start);
  if (code != 0) delete start;
  return answer(code);
}
FOR_LIBRDKAFKA int thrd_join(thrd_t thread, int* result) {
  void* returned = nullptr;
  const int code = pthread_join(thread, &returned);
  if (result != nullptr) *result = static_cast<int>(reinterpret_cast<std::intptr_t>(returned));
  return answer(code);
}
FOR_LIBRDKAFKA int mtx_init(mtx_t* mutex, int type) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(
      &attributes, (type & mtx_recursive) != 0 ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL);
  const int code = pthread_mutex_init(posix(mutex), &attributes);
  pthread_mutexattr_destroy(&attributes);
  return answer(code);
}
FOR_LIBRDKAFKA int mtx_lock(mtx_t* mutex) { return answer(pthread_mutex_lock(posix(mutex))); }
FOR_LIBRDKAFKA int mtx_trylock(mtx_t* mutex) { return answer(pthread_mutex_trylock(posix(mutex))); }
FOR_LIBRDKAFKA int mtx_unlock(mtx_t* mutex) { return answer(pthread_mutex_unlock(posix(mutex))); }
FOR_LIBRDKAFKA void mtx_destroy(mtx_t* mutex) { pthread_mutex_destroy(posix(mutex)); }
FOR_LIBRDKAFKA int cnd_init(cnd_t* condition) {
  return answer(pthread_cond_init(posix(condition), nullptr));
}
FOR_LIBRDKAFKA int cnd_signal(cnd_t* condition) {
  return answer(pthread_cond_signal(posix(condition)));
}
FOR_LIBRDKAFKA int cnd_broadcast(cnd_t* condition) {
  return answer(pthread_cond_broadcast(posix(condition)));
}
FOR_LIBRDKAFKA int cnd_wait(cnd_t* condition, mtx_t* mutex) {
  return answer(pthread_cond_wait(posix(condition), posix(mutex)));
}
FOR_LIBRDKAFKA int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until) {
  return answer(pthread_cond_timedwait(posix(condition), posix(mutex), until));
}
FOR_LIBRDKAFKA void cnd_destroy(cnd_t* condition) { pthread_cond_destroy(posix(condition)); }

#endif

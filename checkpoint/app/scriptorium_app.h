/* For programs that save themselves, as COMMAND of `scriptorium-run --engine app`, in C or C++.
 * Elsewhere scriptorium_save_now() is never true. Of an MPI program, one rank uses these.
 *
 *     if (scriptorium_save_now()) { save(scriptorium_directory()); scriptorium_saved(); }
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A place for what the program saves, the same in all lives of the job; NULL: there is none. */
static inline const char* scriptorium_directory(void) { return getenv("SCRIPTORIUM_SAVE_DIR"); }

static inline int scriptorium_path(char* path, size_t size, const char* name) {
  const char* directory = scriptorium_directory();
  const int length = directory ? snprintf(path, size, "%s/%s", directory, name) : -1;
  return length > 0 && (size_t)length < size;
}

/* The program should save itself. */
static inline int scriptorium_save_now(void) {
  char path[4096];
  return scriptorium_path(path, sizeof path, "save_now") && access(path, F_OK) == 0;
}

/* The program has saved itself in an earlier life, and should continue from there. */
static inline int scriptorium_resumes(void) { return getenv("SCRIPTORIUM_RESUMES") ? 1 : 0; }

/* The program is saved, and may be ended. 0: done. */
static inline int scriptorium_saved(void) {
  char path[4096];
  if (!scriptorium_path(path, sizeof path, "saved")) return -1;
  FILE* file = fopen(path, "w");
  if (!file || fclose(file) != 0 || !scriptorium_path(path, sizeof path, "save_now")) return -1;
  return unlink(path);
}

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Preloaded by clocks.py: the wall clock of this process is what the file REFIT_FAULTS_CLOCK says, which may change at
// any time. Its content: two int64, nanoseconds to add, and the instant at which the clock stands (0: it goes).

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t kSecond = 1000000000;
static const volatile int64_t* wall;
static int (*system_gettime)(clockid_t, struct timespec*);

__attribute__((constructor)) static void Begin(void) {
  system_gettime = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const char* path = getenv("REFIT_FAULTS_CLOCK");
  const int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    void* const content = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    wall = content == MAP_FAILED ? NULL : content;
    close(file);
  }
}

int clock_gettime(clockid_t clock, struct timespec* out) {
  if (system_gettime == NULL) {
    Begin();
  }
  const int result = system_gettime(clock, out);
  if (result == 0 && wall != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    const int64_t real = wall[1] != 0 ? wall[1] : out->tv_sec * kSecond + out->tv_nsec;
    out->tv_sec = (real + wall[0]) / kSecond;
    out->tv_nsec = (real + wall[0]) % kSecond;
  }
  return result;
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
  struct timespec now;
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  (void)zone;
  return result;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) {
    *out = now.tv_sec;
  }
  return now.tv_sec;
}

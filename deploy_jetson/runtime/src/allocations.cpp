// The C library's allocation functions with a count for each thread, so that a run can prove that its real-time threads
// allocate nothing, in no library either. Part of the executable only: its symbols come before those of all libraries.
#include <cerrno>
#include <cstdlib>

#include "rt.h"

extern "C" {
// glibc's own names for its functions.
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace {

thread_local std::uint64_t counted = 0;

}  // namespace

namespace robot_rl {

std::uint64_t allocations() noexcept { return counted; }

}  // namespace robot_rl

#pragma GCC visibility push(default)
extern "C" {

void* malloc(std::size_t bytes) {
  ++counted;
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  ++counted;
  return __libc_calloc(count, bytes);
}

void* realloc(void* memory, std::size_t bytes) {
  ++counted;
  return __libc_realloc(memory, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  ++counted;
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  void* const found = memalign(alignment, bytes);
  if (!found) return ENOMEM;
  *memory = found;
  return 0;
}
}
#pragma GCC visibility pop

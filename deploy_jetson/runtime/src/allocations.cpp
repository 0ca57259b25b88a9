// operator new that counts, so that a run can prove that its real-time threads allocate nothing.
#include <cstdlib>
#include <new>

#include "rt.h"

namespace {

thread_local std::uint64_t counted = 0;

void* counted_alloc(std::size_t bytes) noexcept {
  ++counted;
  return std::malloc(bytes ? bytes : 1);
}

void* counted_alloc(std::size_t bytes, std::align_val_t alignment) noexcept {
  ++counted;
  const auto align = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(align, (bytes + align) / align * align);
}

template <class... Args>
void* or_throw(Args... args) {
  if (void* memory = counted_alloc(args...)) return memory;
  throw std::bad_alloc();
}

}  // namespace

namespace robot_rl {

std::uint64_t allocations() noexcept { return counted; }

}  // namespace robot_rl

// The array and nothrow forms of the standard library end here.
void* operator new(std::size_t bytes) { return or_throw(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return or_throw(bytes, alignment); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

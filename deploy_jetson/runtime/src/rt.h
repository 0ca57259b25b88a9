// Real time on Linux: clock, priorities, memory, and what was permitted.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace robot_rl {

/// CLOCK_MONOTONIC [ns].
std::int64_t now_ns() noexcept;
/// Sleep until an absolute time of CLOCK_MONOTONIC; continues after signals.
void sleep_until(std::int64_t time_ns) noexcept;

/// Each returns whether it was permitted; `why` is empty then, else one line with the remedy.
bool lock_memory(std::string& why);                       // mlockall, and no trimming of the heap
bool set_fifo(int priority, std::string& why);            // this thread
bool pin_to_cpu(int cpu, std::string& why);               // this thread
/// Touch the stack so that it does not fault later.
void prefault_stack() noexcept;
/// For a thread without real-time priority: let its timers fire on time, not up to 50 us later.
void sharpen_timers() noexcept;

/// Keep the CPUs out of sleep states with a long wake-up time during its lifetime; does nothing if not permitted.
class AwakeCpus {
 public:
  AwakeCpus() noexcept;
  ~AwakeCpus();
  AwakeCpus(const AwakeCpus&) = delete;
  AwakeCpus& operator=(const AwakeCpus&) = delete;
  bool held() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

/// A mutex with priority inheritance: its holder runs with the priority of the threads that wait for it.
class PiMutex {
 public:
  PiMutex();
  ~PiMutex() { pthread_mutex_destroy(&mutex_); }
  PiMutex(const PiMutex&) = delete;
  PiMutex& operator=(const PiMutex&) = delete;
  void lock() noexcept { pthread_mutex_lock(&mutex_); }
  void unlock() noexcept { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

/// Page faults of the calling thread so far.
struct PageFaults {
  long minor = 0, major = 0;
};
PageFaults page_faults() noexcept;
/// Calls of malloc, calloc, realloc and so on by the calling thread so far, in any library (counted in robot-rl-infer;
/// 0 in other programs).
std::uint64_t allocations() noexcept;

/// A value with one writer and any number of readers, none of which waits for another.
template <class T>
class Seqlock {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  void store(const T& value) noexcept {
    const auto count = count_.load(std::memory_order_relaxed);
    count_.store(count + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::memcpy(static_cast<void*>(&value_), &value, sizeof(T));
    count_.store(count + 2, std::memory_order_release);
  }
  /// Copy the newest value; returns how many times it was stored.
  std::uint64_t load(T& value) const noexcept {
    for (;;) {
      const auto before = count_.load(std::memory_order_acquire);
      std::memcpy(static_cast<void*>(&value), &value_, sizeof(T));
      std::atomic_thread_fence(std::memory_order_acquire);
      if (!(before & 1) && before == count_.load(std::memory_order_relaxed)) return before / 2;
    }
  }
  std::uint64_t stores() const noexcept { return count_.load(std::memory_order_acquire) / 2; }

 private:
  std::atomic<std::uint64_t> count_{0};
  T value_{};
};

}  // namespace robot_rl

// Another network, which the policy's thread takes over between two control steps.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "backend.h"

namespace robot_rl {

using Identity = std::array<char, 64>;  // of a bundle: SHA-256, hexadecimal

/// Handed to the policy's thread by another one; only the answer in it is written by the policy's thread.
struct Handover {
  Backend* backend = nullptr;  // nullptr: the one that the loop began with
  Identity identity{};

  /// The policy's thread: it acted with this network for the first time.
  void answer(std::uint64_t step, std::int64_t time_ns) noexcept {
    time_ns_.store(time_ns, std::memory_order_relaxed);
    step_.store(static_cast<std::int64_t>(step), std::memory_order_release);
  }
  bool acted() const noexcept { return first_step() >= 0; }
  /// The first control step with it; -1: there was none yet.
  std::int64_t first_step() const noexcept { return step_.load(std::memory_order_acquire); }
  /// When that step was done.
  std::int64_t time_ns() const noexcept { return time_ns_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> step_{-1}, time_ns_{0};
};

}  // namespace robot_rl

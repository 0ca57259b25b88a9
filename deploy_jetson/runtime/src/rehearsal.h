// When to run the network an additional time before a state: while a thread sleeps, other programs evict the weights
// from the caches, and loading them again would take longer than the inference itself.
#pragma once

#include <cstdint>

namespace robot_rl {

/// Follows the arrival of states like a phase-locked loop. Times on CLOCK_MONOTONIC [ns].
class Rehearsal {
 public:
  /// A state arrived.
  void on_state(std::int64_t received_ns) noexcept {
    const std::int64_t error = received_ns - next_ns_;
    if (seen_ == 0 || error > kLongest * interval_ns_ + kPauseNs) {  // the first one, or the first after a pause
      first_ns_ = received_ns;
      seen_ = 1;
      interval_ns_ = 0;
      next_ns_ = received_ns;
      return;
    }
    if (seen_ <= kLearned) {  // use the mean at first
      interval_ns_ = (received_ns - first_ns_) / seen_++;
      next_ns_ = received_ns + interval_ns_;
      return;
    }
    if (interval_ns_ <= 0) return;
    // Number of lost states; -1: delayed, and arrived together with the one before.
    const std::int64_t steps = error < -interval_ns_ / 2 ? -1 : (error + interval_ns_ / 2) / interval_ns_;
    const std::int64_t off = error - steps * interval_ns_;
    // An early state is more accurate than one that was delayed on its way.
    next_ns_ += (steps + 1) * interval_ns_ + (off < 0 ? off / 4 : off / 16);
    interval_ns_ += off / 512;
  }
  /// Duration of a rehearsal.
  void on_done(std::int64_t took_ns) noexcept { cost_ns_ += cost_ns_ == 0 ? took_ns : (took_ns - cost_ns_) / 8; }
  /// Between two states; 0: not known yet.
  std::int64_t interval_ns() const noexcept { return seen_ > kLearned ? interval_ns_ : 0; }
  /// When the next state is expected.
  std::int64_t expected_ns() const noexcept { return next_ns_; }
  /// When a rehearsal must begin to end shortly before that; 0: unknown, or there is not enough time.
  std::int64_t begin_ns() const noexcept {
    const std::int64_t lead = cost_ns_ + cost_ns_ / 4 + kSlackNs;
    return seen_ > kLearned && interval_ns_ > 2 * lead ? next_ns_ - lead : 0;
  }

 private:
  static constexpr std::int64_t kSlackNs = 70'000;  // for waking up, and for states that arrive early
  static constexpr std::int64_t kLongest = 8, kPauseNs = 200'000'000;
  static constexpr int kLearned = 16;
  int seen_ = 0;
  std::int64_t first_ns_ = 0, next_ns_ = 0, interval_ns_ = 0, cost_ns_ = 0;
};

}  // namespace robot_rl

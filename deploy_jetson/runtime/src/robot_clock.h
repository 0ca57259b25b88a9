// Compares the robot's clock with this machine's: the checks of sensors rely on it. A pure function of its calls.
#pragma once

#include <cstdint>

#include "safety.h"

namespace robot_rl {

/// Judges about a second of states at a time, by how much of it the robot's clock showed and how often that jumped.
class RobotClock {
 public:
  /// The next state's times [ns]: by the robot's clock, and on CLOCK_MONOTONIC when it arrived. Returns the current
  /// finding: kRobotClock with the rate of the robot's clock as its value, or with `joint` 1 its jumps in a second.
  const Finding& see(std::int64_t robot_ns, std::int64_t received_ns) noexcept {
    const std::int64_t own = received_ns - received_ns_, robots = robot_ns - robot_ns_;
    const bool goes_on = have_ && own >= 0 && own < kPauseNs;
    have_ = true;
    robot_ns_ = robot_ns;
    received_ns_ = received_ns;
    if (!goes_on) {
      begin();
      return found_;
    }
    own_ns_ += own;
    if (robots < 0 || (robots > kGapNs && robots > 2 * own)) {
      ++jumps_;
    } else {
      shown_ns_ += robots;
    }
    if (own_ns_ >= kWindowNs) judge();
    return found_;
  }

 private:
  static constexpr std::int64_t kWindowNs = 1'000'000'000, kPauseNs = 500'000'000, kGapNs = 100'000'000;
  static constexpr int kJumps = 3;        // so many in a window leave too little time between them to compare sensors
  static constexpr double kSlowest = 0.02, kFastest = 50;  // of a simulation that is slowed down or runs ahead

  void begin() noexcept { own_ns_ = shown_ns_ = jumps_ = 0; }

  void judge() noexcept {
    const double rate = static_cast<double>(shown_ns_) / static_cast<double>(own_ns_);
    found_ = Finding{};
    if (jumps_ >= kJumps) {
      found_ = {Fault::kRobotClock, 1, static_cast<double>(jumps_), kJumps};
    } else if (rate < kSlowest) {
      found_ = {Fault::kRobotClock, -1, rate, kSlowest};
    } else if (rate > kFastest) {
      found_ = {Fault::kRobotClock, -1, rate, kFastest};
    }
    begin();
  }

  bool have_ = false;
  std::int64_t robot_ns_ = 0, received_ns_ = 0;
  std::int64_t own_ns_ = 0, shown_ns_ = 0, jumps_ = 0;  // since the window began
  Finding found_;
};

}  // namespace robot_rl

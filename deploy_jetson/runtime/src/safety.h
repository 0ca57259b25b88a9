// The safety layer: pure functions of state, action and time, the same on a robot and in simulation.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "contract.h"
#include "settings.h"
#include "types.h"

namespace robot_rl {

/// What was found: a fault, the joint (-1: none) and value against limit, for one line in the log.
struct Finding {
  Fault fault = Fault::kNone;
  int joint = -1;
  double value = 0, limit = 0;
  explicit operator bool() const { return fault != Fault::kNone; }
};

/// "joint_velocity: 'FL_hip' 31.2 rad/s, the limit is 30.1 rad/s".
std::string describe(const Finding& finding, const Contract& contract);

class Safety {
 public:
  Safety(const Contract& contract, const SafetyLimits& limits);
  /// Content of one state: not finite, tilt, position, velocity, effort, temperature, motor fault.
  Finding check_state(const LowState& state) const;
  /// Age and standstill of the newest state at `now_ns`.
  Finding check_age(const LowState& newest, std::int64_t now_ns, std::int64_t last_change_ns) const;
  /// A policy's output: not finite, action rate (`previous` empty: the first one).
  Finding check_action(std::span<const float> action, std::span<const float> previous) const;
  /// Keep kp (q - q_measured) + kd (dq - dq_measured) + tau of every joint inside its effort limit by moving q, or tau where
  /// kp is 0. Returns how many joints were limited.
  int limit_effort(const LowState& state, LowCommand& command) const;
  const SafetyLimits& limits() const { return limits_; }

 private:
  const Contract* contract_;
  SafetyLimits limits_;
};

}  // namespace robot_rl

// The safety layer: pure functions of state, action and time, the same on a robot and in simulation.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "contract.h"
#include "settings.h"
#include "types.h"

namespace robot_rl {

/// The array that a finding refers to, if the fault does not determine it. Logs contain the numbers: append new ones at
/// the end.
enum class Signal : std::uint8_t {
  kNone, kQuat, kGyro, kAcc, kJointPos, kJointVel, kJointEffort, kTemperature, kFootContact, kFootForce, kHeightScan,
  kAction, kTarget, kCommand, kJoints, kFeet, kHeights, kImu, kMeasured, kMeasuredCount, kCount
};

/// A finding: a fault, the joint (-1: none), value and limit, for one line in the log. With `signal` of
/// something other than joints `joint` is the component.
struct Finding {
  Fault fault = Fault::kNone;
  int joint = -1;
  double value = 0, limit = 0;
  Signal signal = Signal::kNone;
  explicit operator bool() const { return fault != Fault::kNone; }
};

/// One line: "joint_velocity: 'FL_hip' at 31.2 rad/s (or m/s), the limit is 30.1".
std::string describe(const Finding& finding, const Contract& contract);

class Safety {
 public:
  /// Throws UserError for an invalid limit, ContractError for a contract too large for this runtime.
  Safety(const Contract& contract, const SafetyLimits& limits);
  /// Content of one state: counts that fit the contract, not finite, tilt, position, velocity, effort, temperature,
  /// motor fault. A quaternion without unit length counts as tilt.
  Finding check_state(const LowState& state) const;
  /// Age and standstill of the newest state at `now_ns`.
  Finding check_age(const LowState& newest, std::int64_t now_ns, std::int64_t last_change_ns) const;
  /// A policy's output: not finite, action rate (`previous` empty: the first one).
  Finding check_action(std::span<const float> action, std::span<const float> previous) const;
  /// Keep kp (q - q_measured) + kd (dq - dq_measured) + tau of every joint inside its effort limit by moving q; if kp
  /// is 0 by moving dq, where tau alone is inside, or else tau; if no float achieves it, kp and then kd become 0.
  /// Without a motor all are 0. Returns how many joints were changed.
  int limit_effort(const LowState& state, LowCommand& command) const;
  const SafetyLimits& limits() const { return limits_; }

 private:
  Finding check_counts(const LowState& state) const;
  Finding check_finite(const LowState& state) const;
  Finding check_attitude(const LowState& state) const;
  Finding check_joint(const LowState& state, int joint) const;
  const Contract* contract_;
  SafetyLimits limits_;
  double tilt_cos_;
  int joints_, feet_ = 0;  // what the contract needs
};

}  // namespace robot_rl

// Checks that each sensor still measures: one must not repeat its bits while another shows a change, and gyroscope
// and orientation must agree. A pure function of its calls, like all of the safety layer; the same work for every
// state.
#pragma once

#include <array>
#include <cstdint>

#include "contract.h"
#include "imu_convention.h"
#include "rotation.h"
#include "safety.h"
#include "settings.h"
#include "types.h"

namespace robot_rl {

/// Compares the robot's sensors with each other, by the robot's own clock. A signal that has never changed and that the
/// contract does not read counts as absent.
class Sensors {
 public:
  Sensors(const Contract& contract, const SafetyLimits& limits);
  /// Check the next state (only finite numbers); whether the policy walks. Returns the current finding:
  /// kSensorFrozen until the sensor changes again or is acknowledged, kImuDisagrees as long as both differ.
  Finding see(const LowState& state, bool walking);
  /// The last result of see().
  const Finding& found() const { return found_; }
  /// Record the efforts that a command requests at the joint positions of the newest state.
  void ask(const LowCommand& command);
  /// The operator acknowledged what was found: everything is compared from here on.
  void acknowledge();

 private:
  /// How long a signal has repeated its bits [s].
  struct Still {
    double seconds = 0;
    bool present = false;  // the contract reads it, or it has changed once
    /// Count the time; returns whether it changed.
    bool see(bool changed, double dt);
  };
  struct Joint {
    Still position, velocity;
    double moved = 0;    // by its speed, since the position changed last [rad or m]
    double unreported = 0;   // moved by its position and not by its speed, since the speed changed last [rad or m]
    double lowest = 0, highest = 0;  // efforts requested since the position changed last [N m or N]
    bool has_effort = false;
    double at_imu = 0;   // position when the IMU changed last [rad or m]
  };

  void begin(const LowState& state);
  void restart_joints();
  void advance(const LowState& state, double dt);
  void advance_imu(const LowState& state, double dt);
  void advance_joint(const LowState& state, int joint, double dt);
  void compare(const Vector& rate, double dt);
  void part_joints_from_base(const LowState& state);
  Finding judge() const;
  Finding judge_imu() const;
  Finding judge_joint(int joint) const;
  Finding judge_joints() const;
  Finding judge_agreement() const;
  bool frozen(const Still& still) const { return still.present && still.seconds > limits_.sensor_frozen_s; }
  /// Whether it gives no information: absent or frozen.
  bool silent(const Still& still) const { return !still.present || still.seconds > limits_.sensor_frozen_s; }
  /// Whether the policy has walked for longer than a sensor may stand still.
  bool walks() const { return walked_ > limits_.sensor_frozen_s; }
  const Still& still_of(const Finding& finding) const;
  Finding frozen_finding(Signal signal, int joint) const;

  const Contract* contract_;
  SafetyLimits limits_;
  int joints_;
  bool have_ = false;
  LowState last_;
  Finding found_;
  Still orientation_, gyro_, acc_;
  std::array<Joint, kMaxJoints> joint_{};
  Quaternion now_{1, 0, 0, 0};        // orientation, of unit length
  Quaternion by_gyro_{1, 0, 0, 0};    // integrated from the gyroscope, with a drift towards the measured one
  Quaternion at_joints_{1, 0, 0, 0};  // orientation when a joint changed last
  Vector turned_{};                   // by the gyroscope, since the orientation changed last [rad]
  Vector unreported_{};                   // by the orientation and not by the gyroscope, since that changed last [rad]
  Vector up_at_acc_{};                // the vertical in the base's frame when the accelerometer changed last
  double walked_ = 0;                 // since POLICY was entered [s]
  double fastest_ = 0;                // the largest recent rate, decaying with time [rad/s]
  ImuConvention convention_;
  bool reads_acc_ = false;            // then it is in the base's frame; otherwise a driver may give it in the IMU's
};

}  // namespace robot_rl

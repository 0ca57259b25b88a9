// Messages between robot, operator and policy. Plain data without pointers: copied through rings and shared memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace robot_rl {

/// A type, const or not.
template <class T, class Of>
concept Is = std::same_as<std::remove_const_t<T>, Of>;

inline constexpr int kMaxJoints = 64;
inline constexpr int kMaxFeet = 8;
inline constexpr int kMaxMeasured = 1024;
inline constexpr int kMaxCommand = 96;

/// Whether a time from outside [ns] may be used: no difference of two overflows. Unix time may be, until 2116.
inline constexpr bool is_time(std::int64_t time_ns) {
  constexpr std::int64_t kEnd = std::int64_t{1} << 62;
  return time_ns > -kEnd && time_ns < kEnd;
}

/// One state of the robot. Joints are in the contract's order; a transport resolves them by name.
struct LowState {
  std::uint64_t sequence = 0;         // of the robot, one more with each state
  std::int64_t robot_time_ns = 0;     // the robot's own clock
  std::int64_t receive_time_ns = 0;   // CLOCK_MONOTONIC of this machine when it arrived
  std::uint64_t commander = 0;        // the one that the robot obeyed last; 0: not reported
  std::int32_t joints = 0, feet = 0, measured_count = 0;
  float quat_wxyz[4] = {1, 0, 0, 0};  // of the base in the world
  float gyro[3] = {};                 // [rad/s], base frame
  float acc[3] = {};                  // [m/s^2], specific force in the IMU's frame
  float joint_pos[kMaxJoints] = {};   // [rad] or [m]
  float joint_vel[kMaxJoints] = {};   // [rad/s] or [m/s]
  float joint_effort[kMaxJoints] = {};       // [N m] or [N], estimated by the motor
  float temperature_c[kMaxJoints] = {};      // of the motors; 0: not reported
  std::uint32_t motor_fault[kMaxJoints] = {};  // fault bits of the motors, 0: none
  float foot_contact[kMaxFeet] = {};  // 0 or 1
  float foot_force[kMaxFeet] = {};    // [N]
  float measured[kMaxMeasured] = {};    // signals measured/<name>, in the order in which the contract first reads them
};

/// Request of the operator.
enum class Request : std::uint8_t { kNone = 0, kDamp = 1, kStand = 2, kPolicy = 3 };

/// One message of the operator; each is a heartbeat, too.
struct OperatorInput {
  std::uint64_t sequence = 0;
  std::int64_t receive_time_ns = 0;
  Request request = Request::kNone;
  std::int32_t size = 0;              // components of the command that are given
  float command[kMaxCommand] = {};    // in the order of the contract's command
};

/// Phase of the state machine; DAMPING is latched until the operator requests STAND, and only if nothing is wrong.
enum class Phase : std::uint8_t { kBoot = 0, kDamping = 1, kStand = 2, kPolicy = 3 };

/// Why the machine went to DAMPING. Messages and logs contain the numbers: append new ones at the end.
enum class Fault : std::uint8_t {
  kNone = 0,
  kNotFinite,        // a NaN or infinity in the state or in the action
  kStateAge,         // no new state for too long
  kStateFrozen,      // states arrive, but their content or sequence does not change
  kDeadline,         // the policy missed too many control periods
  kTilt,             // the base leans too far
  kJointPosition,    // outside its limits
  kJointVelocity,    // faster than its limit, either sign
  kActionRate,       // the policy's target jumps
  kEffort,           // the motors' measured effort is beyond the limits
  kTemperature,      // a motor is too hot
  kMotorFault,       // a motor reports a fault
  kSecondCommander,  // another program commands the robot
  kOperatorLost,     // the operator's heartbeat is late
  kOperatorStop,     // the operator requested damping
  kRefused,          // golden replay or contract
  kInternal,         // an exception, the death of the watchdog
  kSensorFrozen,     // a sensor repeats itself while another one moves
  kImuDisagrees,     // gyroscope and orientation show different rotations
  kStalled,          // this process was silent, and the watchdog had to take over
  kRobotClock,       // the robot's clock stands still, jumps, or counts in another unit
  kCommandSize,      // the operator's command has more components than the contract's
  kCount
};

/// Name of a phase or fault for logs and messages, such as "state_age".
const char* name_of(Phase phase);
const char* name_of(Fault fault);

/// One command to the motors, in the contract's order: effort = tau + kp (q - q_measured) + kd (dq - dq_measured).
struct LowCommand {
  std::uint64_t sequence = 0;
  std::uint64_t commander = 0;        // who sends it
  std::uint64_t state_sequence = 0;   // of the state that it answers
  std::int64_t state_robot_time_ns = 0;  // the same state's time by the robot's clock
  std::int64_t state_age_ns = 0;      // of that state when the command was sent
  std::int64_t send_time_ns = 0;      // CLOCK_MONOTONIC
  std::int32_t joints = 0;
  Phase phase = Phase::kBoot;
  Fault fault = Fault::kNone;
  bool from_policy = false;           // sent right after an inference, not at a writer's tick
  float q[kMaxJoints] = {};
  float dq[kMaxJoints] = {};
  float kp[kMaxJoints] = {};
  float kd[kMaxJoints] = {};
  float tau[kMaxJoints] = {};
};

}  // namespace robot_rl

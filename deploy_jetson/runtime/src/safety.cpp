#include "safety.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>

#include "imu_convention.h"

namespace robot_rl {

namespace {

constexpr double kUnitNorm = 0.1;     // how far a quaternion's norm may be from 1
constexpr double kLargest = 1e7;      // of gains, limits, scales and poses: beyond, products could leave float's range
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Names = std::array<const char*, static_cast<std::size_t>(Signal::kCount)>;
constexpr Names kSignals = {"",          "imu_quat_wxyz", "imu_gyro",   "imu_acc",      "joint_pos",  "joint_vel",
                            "joint_effort", "temperature", "foot_contact", "foot_force", "height_scan", "action",
                            "joint_target", "command",  "joints",     "feet",         "heights",    "the whole IMU",
                            "measured",  "measured values"};

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

void require(bool good, const char* name, double value, const char* right) {
  if (!good) throw UserError("limits." + std::string(name) + "=" + shown(value) + ": must be " + right);
}

void check_limits(const SafetyLimits& limits) {
  const std::pair<const char*, double> positive[] = {
      {"state_age_s", limits.state_age_s},         {"state_frozen_s", limits.state_frozen_s},
      {"tilt_rad", limits.tilt_rad},               {"velocity_factor", limits.velocity_factor},
      {"action_rate", limits.action_rate},         {"effort_factor", limits.effort_factor},
      {"temperature_c", limits.temperature_c},     {"sensor_frozen_s", limits.sensor_frozen_s},
      {"imu_disagree_rad", limits.imu_disagree_rad}};
  for (const auto& [name, value] : positive) require(std::isfinite(value) && value > 0, name, value, "more than 0");
  require(limits.missed_deadlines >= 1, "missed_deadlines", limits.missed_deadlines, "1 or more");
  for (const auto& [name, value] : {std::pair{"position_margin", limits.position_margin},
                                    {"operator_s", limits.operator_s}}) {
    require(std::isfinite(value) && value >= 0, name, value, "0 or more");
  }
  for (const auto& [name, value] : {std::pair{"state_age_s", limits.state_age_s},
                                    {"state_frozen_s", limits.state_frozen_s}, {"operator_s", limits.operator_s}}) {
    require(value <= 1e9, name, value, "at most 1e9");
  }
}

void check_size(const char* what, std::size_t size, int most) {
  if (size <= static_cast<std::size_t>(most)) return;
  const std::string room = "; this runtime has room for " + std::to_string(most);
  throw ContractError(what + (": " + std::to_string(size)) + room);
}

void check_range(const std::string& where, double value) {
  if (std::abs(value) <= kLargest) return;
  throw ContractError(where + ": " + shown(value) + "; this runtime takes magnitudes of at most " + shown(kLargest));
}

void check_contract(const Contract& contract) {
  check_size("joints", contract.joints.size(), kMaxJoints);
  check_size("actions", contract.actions.size(), kMaxJoints);
  check_size("command", contract.command.size(), kMaxCommand);
  check_size("fallback_pose", contract.fallback_pose.size(), static_cast<int>(contract.joints.size()));
  check_size("joints without a fallback_pose", contract.joints.size() - contract.fallback_pose.size(), 0);
  for (std::size_t i = 0; i < contract.joints.size(); ++i) {
    const JointSpec& joint = contract.joints[i];
    const std::string where = "joint '" + joint.name + "': ";
    check_range(where + "kp", joint.kp);
    check_range(where + "kd", joint.kd);
    check_range(where + "effort_limit", joint.effort_limit);
    check_range(where + "fallback_pose", contract.fallback_pose[i]);
  }
  for (const ActionSpec& action : contract.actions) {
    if (action.joint_index < 0 || action.joint_index >= static_cast<int>(contract.joints.size())) {
      throw ContractError("action of '" + action.joint + "': joint: it is not one of the contract's joints");
    }
  }
  for (const CommandSpec& command : contract.command) {
    check_range("command '" + command.name + "': lower", command.lower);
    check_range("command '" + command.name + "': upper", command.upper);
  }
}

/// The first value that is not finite as a finding; none if all are.
Finding not_finite(Signal signal, const float* values, int count) {
  for (int i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return {Fault::kNotFinite, i, values[i], 0, signal};
  }
  return {};
}

/// The float nearest to `value` that is not above it, or not below it; |value| <= FLT_MAX.
float rounded_down(double value) {
  const auto nearest = static_cast<float>(value);
  return static_cast<double>(nearest) > value ? std::nextafter(nearest, -kInfinity) : nearest;
}
float rounded_up(double value) { return -rounded_down(-value); }

/// Move `value` between two bounds, rounded inwards; false if there is no float between them.
bool bring_within(double low, double high, float& value) {
  if (!(std::abs(low) <= FLT_MAX && std::abs(high) <= FLT_MAX)) return false;
  const float lowest = rounded_up(low), highest = rounded_down(high);
  if (lowest > highest) return false;
  value = std::clamp(value, lowest, highest);
  return true;
}

/// One joint of limit_effort.
void limit_joint(double limit, double position, double velocity, int i, LowCommand& c) {
  if (limit == 0) {
    c.q[i] = static_cast<float>(position);
    c.dq[i] = c.kp[i] = c.kd[i] = c.tau[i] = 0;
    return;
  }
  const double kp = c.kp[i], kd = c.kd[i], tau = c.tau[i];
  const double damping = kd * (static_cast<double>(c.dq[i]) - velocity);
  const double low = -limit - damping, high = limit - damping;
  const double wanted = kp * (static_cast<double>(c.q[i]) - position) + damping + tau;
  if (std::abs(wanted) <= limit) return;
  if (kp > 0 && bring_within(position + (low - tau) / kp, position + (high - tau) / kp, c.q[i])) return;
  if (kp > 0) c.kp[i] = 0;
  const bool by_speed = kp == 0 && kd > 0 && std::abs(tau) <= limit;  // dq moves towards the measured speed
  if (by_speed && bring_within(velocity + (-limit - tau) / kd, velocity + (limit - tau) / kd, c.dq[i])) return;
  if (bring_within(low, high, c.tau[i])) return;
  c.kd[i] = 0;
  bring_within(-limit, limit, c.tau[i]);
}

std::string in_ms(double seconds) { return shown(seconds * 1e3) + " ms"; }

std::string place(const Finding& finding, const Contract& contract) {
  const auto index = static_cast<std::size_t>(finding.joint);
  const Signal signal = finding.signal;
  const bool joint = signal == Signal::kNone || (signal >= Signal::kJointPos && signal <= Signal::kTemperature);
  if (finding.joint >= 0 && joint && index < contract.joints.size()) return "'" + contract.joints[index].name + "'";
  const bool action = signal == Signal::kAction || signal == Signal::kTarget;
  if (finding.joint >= 0 && action && index < contract.actions.size()) return "'" + contract.actions[index].joint + "'";
  const auto* term = signal == Signal::kMeasured ? contract.measured_term(finding.joint) : nullptr;
  if (term != nullptr) return "component " + std::to_string(finding.joint - term->place);
  return finding.joint >= 0 ? "component " + std::to_string(finding.joint) : "";
}

std::string name_of(Signal signal) {
  const auto index = static_cast<std::size_t>(signal);
  return index < kSignals.size() ? kSignals[index] : "unknown";
}

/// The likely cause of a clock's rate, for a line.
std::string unit_of_clock(double rate) {
  const auto near = [rate](double unit) { return rate > 0.5 * unit && rate < 2 * unit; };
  if (near(1e-3)) return ", as if it counted microseconds";
  if (near(1e-6)) return ", as if it counted milliseconds";
  return rate == 0 ? "; 0 in every state says that it has no clock" : "";
}

/// What is frozen, without its joint.
std::string frozen_part(const Finding& finding) {
  const bool joints = finding.signal == Signal::kJointPos || finding.signal == Signal::kJointVel;
  if (finding.joint < 0) return name_of(finding.signal) + (joints ? " of every joint" : "");
  return (finding.signal == Signal::kNone ? "the encoder" : name_of(finding.signal)) + " of ";
}

std::string details(const Finding& finding, const Contract& contract) {
  const std::string where = place(finding, contract), value = shown(finding.value), limit = shown(finding.limit);
  const std::string at = where + " at " + value, above = ", the limit is " + limit;
  switch (finding.fault) {
    case Fault::kNotFinite: {
      const auto* term = finding.signal == Signal::kMeasured ? contract.measured_term(finding.joint) : nullptr;
      std::string of = term != nullptr ? term->signal : name_of(finding.signal);
      if (!of.empty() && !where.empty()) of += " of ";
      return of + where + " is " + value;
    }
    case Fault::kStateAge:
      return "the newest state is " + in_ms(finding.value) + " old, the limit is " + in_ms(finding.limit);
    case Fault::kStateFrozen:
      return "states stand still for " + in_ms(finding.value) + ", the limit is " + in_ms(finding.limit);
    case Fault::kDeadline:
      return value + " control periods in a row without an action in time, the limit is " + limit;
    case Fault::kTilt:
      if (finding.signal == Signal::kQuat) return "the norm of imu_quat_wxyz is " + value + ", it must be 1";
      return "the base leans by " + value + " rad" + above;
    case Fault::kJointPosition: return at + " rad (or m)" + above;
    case Fault::kJointVelocity: return at + " rad/s (or m/s)" + above;
    case Fault::kActionRate: return "the action of " + where + " jumps by " + value + above;
    case Fault::kEffort: return at + " N m (or N)" + above;
    case Fault::kTemperature: return where + " at " + value + " degrees Celsius" + above;
    case Fault::kMotorFault: {
      char bits[16];
      std::snprintf(bits, sizeof bits, "0x%x", static_cast<std::uint32_t>(finding.value));
      return "the motor of " + where + " reports fault bits " + bits;
    }
    case Fault::kOperatorLost:
      return "no message of the operator for " + in_ms(finding.value) + ", the limit is " + in_ms(finding.limit);
    case Fault::kSecondCommander: return "another program commands the robot";
    case Fault::kOperatorStop: return "the operator requested damping";
    case Fault::kRefused:
      if (finding.signal == Signal::kNone) return "bundle or robot did not pass the checks";
      return "the state has " + value + " " + name_of(finding.signal) + ", the contract needs " + limit;
    case Fault::kInternal: return "the network, a thread or the watchdog failed";
    case Fault::kSensorFrozen:
      return frozen_part(finding) + where + " repeats itself for " + in_ms(finding.value) +
             " while the robot moves, the limit is " + in_ms(finding.limit);
    case Fault::kImuDisagrees:
      if (finding.joint >= 0) return name_of_convention(finding.joint);
      return "gyroscope and orientation differ by " + value + " rad" + above;
    case Fault::kRobotClock:
      if (finding.joint >= 0) return "robot_time_ns jumped " + value + " times within a second";
      return "within a second robot_time_ns went on by " + value + " s" + unit_of_clock(finding.value);
    case Fault::kCommandSize: return "the operator's command has " + value + " components, the contract has " + limit;
    case Fault::kStalled: return "this process was silent for " + in_ms(finding.value) + ", the watchdog's limit is " +
             in_ms(finding.limit);
    default: return "";
  }
}

}  // namespace

std::string describe(const Finding& finding, const Contract& contract) {
  const std::string more = details(finding, contract);
  return std::string(name_of(finding.fault)) + (more.empty() ? "" : ": ") + more;
}

Safety::Safety(const Contract& contract, const SafetyLimits& limits)
    : contract_(&contract), limits_(limits), joints_(static_cast<int>(contract.joints.size())) {
  check_limits(limits);
  check_contract(contract);
  tilt_cos_ = limits.tilt_rad < std::numbers::pi ? std::cos(limits.tilt_rad) : -2.0;
  for (const ObservationSpec& term : contract.observations) {
    if (term.signal == "foot_contact" || term.signal == "foot_force") feet_ = std::max(feet_, term.size);
  }
  check_size("foot signals", static_cast<std::size_t>(feet_), kMaxFeet);
  check_size("measured values", static_cast<std::size_t>(contract.measured_size), kMaxMeasured);
}

Finding Safety::check_counts(const LowState& state) const {
  if (state.joints != joints_) {
    return {Fault::kRefused, -1, static_cast<double>(state.joints), static_cast<double>(joints_), Signal::kJoints};
  }
  if (state.feet < feet_ || state.feet > kMaxFeet) {
    return {Fault::kRefused, -1, static_cast<double>(state.feet), static_cast<double>(feet_), Signal::kFeet};
  }
  const int measured = contract_->measured_size;
  if (state.measured_count < measured || state.measured_count > kMaxMeasured) {
    return {Fault::kRefused, -1, static_cast<double>(state.measured_count), static_cast<double>(measured),
            Signal::kMeasuredCount};
  }
  return {};
}

Finding Safety::check_finite(const LowState& state) const {
  struct Part {
    Signal signal;
    const float* values;
    int count;
  };
  const Part parts[] = {{Signal::kQuat, state.quat_wxyz, 4},
                        {Signal::kGyro, state.gyro, 3},
                        {Signal::kAcc, state.acc, 3},
                        {Signal::kJointPos, state.joint_pos, joints_},
                        {Signal::kJointVel, state.joint_vel, joints_},
                        {Signal::kJointEffort, state.joint_effort, joints_},
                        {Signal::kTemperature, state.temperature_c, joints_},
                        {Signal::kFootContact, state.foot_contact, state.feet},
                        {Signal::kFootForce, state.foot_force, state.feet},
                        // A log contains none that the policy does not read, and its replay must find the same.
                        {Signal::kMeasured, state.measured, contract_->measured_size}};
  for (const Part& part : parts) {
    if (const Finding finding = not_finite(part.signal, part.values, part.count)) return finding;
  }
  return {};
}

Finding Safety::check_attitude(const LowState& state) const {
  const double w = state.quat_wxyz[0], x = state.quat_wxyz[1], y = state.quat_wxyz[2], z = state.quat_wxyz[3];
  const double squared = w * w + x * x + y * y + z * z, norm = std::sqrt(squared);
  if (!(std::abs(norm - 1) <= kUnitNorm)) return {Fault::kTilt, -1, norm, 1, Signal::kQuat};
  const double cosine = (w * w - x * x - y * y + z * z) / squared;  // of the angle between the base's z axis and up
  if (cosine >= tilt_cos_) return {};
  return {Fault::kTilt, -1, std::acos(std::clamp(cosine, -1.0, 1.0)), limits_.tilt_rad};
}

Finding Safety::check_joint(const LowState& state, int i) const {
  const JointSpec& joint = contract_->joints[static_cast<std::size_t>(i)];
  const double position = state.joint_pos[i], velocity = state.joint_vel[i], effort = state.joint_effort[i];
  if (state.motor_fault[i] != 0) return {Fault::kMotorFault, i, static_cast<double>(state.motor_fault[i]), 0};
  const double margin = limits_.position_margin;
  if (joint.lower && !(position >= *joint.lower - margin)) {
    return {Fault::kJointPosition, i, position, *joint.lower - margin};
  }
  if (joint.upper && !(position <= *joint.upper + margin)) {
    return {Fault::kJointPosition, i, position, *joint.upper + margin};
  }
  if (joint.velocity_limit && !(std::abs(velocity) <= limits_.velocity_factor * *joint.velocity_limit)) {
    return {Fault::kJointVelocity, i, velocity, limits_.velocity_factor * *joint.velocity_limit};
  }
  if (joint.effort_limit > 0 && !(std::abs(effort) <= limits_.effort_factor * joint.effort_limit)) {
    return {Fault::kEffort, i, effort, limits_.effort_factor * joint.effort_limit};
  }
  if (!(state.temperature_c[i] <= limits_.temperature_c)) {
    return {Fault::kTemperature, i, state.temperature_c[i], limits_.temperature_c};
  }
  return {};
}

Finding Safety::check_state(const LowState& state) const {
  if (const Finding finding = check_counts(state)) return finding;
  if (const Finding finding = check_finite(state)) return finding;
  if (const Finding finding = check_attitude(state)) return finding;
  for (int i = 0; i < joints_; ++i) {
    if (const Finding finding = check_joint(state, i)) return finding;
  }
  return {};
}

Finding Safety::check_age(const LowState& newest, std::int64_t now_ns, std::int64_t last_change_ns) const {
  const double age = static_cast<double>(now_ns - newest.receive_time_ns) * 1e-9;
  if (!(age <= limits_.state_age_s)) return {Fault::kStateAge, -1, age, limits_.state_age_s};
  const double still = static_cast<double>(now_ns - last_change_ns) * 1e-9;
  if (!(still <= limits_.state_frozen_s)) return {Fault::kStateFrozen, -1, still, limits_.state_frozen_s};
  return {};
}

Finding Safety::check_action(std::span<const float> action, std::span<const float> previous) const {
  const int size = static_cast<int>(action.size());
  if (const Finding finding = not_finite(Signal::kAction, action.data(), size)) return finding;
  const std::size_t both = std::min(action.size(), previous.size());
  for (std::size_t i = 0; i < both; ++i) {
    const double change = std::abs(static_cast<double>(action[i]) - static_cast<double>(previous[i]));
    if (!(change <= limits_.action_rate)) {
      return {Fault::kActionRate, static_cast<int>(i), change, limits_.action_rate, Signal::kAction};
    }
  }
  return {};
}

int Safety::limit_effort(const LowState& state, LowCommand& command) const {
  int limited = 0;
  for (int i = 0; i < joints_; ++i) {
    const float before[] = {command.q[i], command.kp[i], command.kd[i], command.tau[i], command.dq[i]};
    const double limit = contract_->joints[static_cast<std::size_t>(i)].effort_limit;
    limit_joint(limit, state.joint_pos[i], state.joint_vel[i], i, command);
    limited += before[0] != command.q[i] || before[1] != command.kp[i] || before[2] != command.kd[i] ||
               before[3] != command.tau[i] || before[4] != command.dq[i];
  }
  return limited;
}

}  // namespace robot_rl

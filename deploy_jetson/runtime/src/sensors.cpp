#include "sensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace robot_rl {

namespace {

constexpr double kGapS = 0.1;      // states further apart are not compared
constexpr double kForgetS = 0.5;   // of what a motion adds up to: slow drifts and offsets count for nothing
constexpr double kCompareS = 0.2;  // how far back gyroscope and orientation are compared
constexpr double kTurn = 0.05;     // [rad]: a turn of the base that no sensor of it can miss
constexpr double kMove = 0.05;     // [rad or m]: of a joint
constexpr double kEffort = 0.25;   // of a joint's effort limit: beyond what its friction holds, either way
constexpr double kStop = 0.02;     // [rad or m]: this near to its limit a joint may not move, whatever is commanded
constexpr double kLate = 0.03;     // [s]: one of the two may come so much later than the other

template <std::size_t N>
bool differ(const float (&a)[N], const float (&b)[N]) {
  return std::memcmp(a, b, sizeof a) != 0;
}
bool differ(float a, float b) { return std::memcmp(&a, &b, sizeof a) != 0; }

/// Add to a sum that decays with time.
void add(double& sum, double more, double dt) { sum = (sum + more) / (1 + dt / kForgetS); }

void add(Vector& sum, const Vector& more, double dt) {
  for (std::size_t i = 0; i < 3; ++i) add(sum[i], more[i], dt);
}

bool reads(const Contract& contract, std::string_view signal) {
  return std::any_of(contract.observations.begin(), contract.observations.end(),
                     [&](const ObservationSpec& term) { return term.signal == signal; });
}

bool at_stop(const JointSpec& joint, double position) {
  return (joint.lower && position < *joint.lower + kStop) || (joint.upper && position > *joint.upper - kStop);
}

}  // namespace

bool Sensors::Still::see(bool changed, double dt) {
  seconds = changed ? 0 : seconds + dt;
  present = present || changed;
  return changed;
}

Sensors::Sensors(const Contract& contract, const SafetyLimits& limits)
    : contract_(&contract), limits_(limits), joints_(std::min(static_cast<int>(contract.joints.size()), kMaxJoints)) {
  orientation_.present = reads(contract, "imu_quat_wxyz");
  gyro_.present = reads(contract, "imu_gyro");
  acc_.present = reads_acc_ = reads(contract, "imu_acc");
  for (const ObservationSpec& term : contract.observations) {
    for (const int joint : term.joints) {
      if (joint < 0 || joint >= joints_) continue;
      if (term.signal == "joint_pos") joint_[static_cast<std::size_t>(joint)].position.present = true;
      if (term.signal == "joint_vel") joint_[static_cast<std::size_t>(joint)].velocity.present = true;
    }
  }
}

Finding Sensors::see(const LowState& state, bool walking) {
  const double dt = static_cast<double>(state.robot_time_ns - last_.robot_time_ns) * 1e-9;
  if (dt == 0 && have_) return found_;  // the robot's clock does not advance, as in a waiting simulation
  if (!have_ || !(dt > 0 && dt <= kGapS)) {
    begin(state);
  } else {
    advance(state, dt);
  }
  convention_.see(state, dt, !walking && reads_acc_);
  // A standing robot may be held perfectly still: only while it walks do joints imply a motion of the base.
  walked_ = walking ? walked_ + std::clamp(dt, 0.0, kGapS) : 0;
  if (!walking) part_joints_from_base(state);
  last_ = state;
  found_ = judge();
  return found_;
}

void Sensors::begin(const LowState& state) {
  have_ = true;
  convention_.interrupt();
  const auto& q = state.quat_wxyz;
  now_ = unit({q[0], q[1], q[2], q[3]});
  orientation_.seconds = gyro_.seconds = acc_.seconds = 0;
  turned_ = unreported_ = Vector{};
  up_at_acc_ = up_of(now_);
  fastest_ = 0;
  by_gyro_ = now_;
  restart_joints();
  part_joints_from_base(state);
}

/// Restart the comparison of each joint's position, speed and effort.
void Sensors::restart_joints() {
  for (int i = 0; i < joints_; ++i) {
    Joint& joint = joint_[static_cast<std::size_t>(i)];
    joint.position.seconds = joint.velocity.seconds = joint.moved = joint.unreported = 0;
    joint.has_effort = false;
  }
}

/// Restart the comparison of joints with the base.
void Sensors::part_joints_from_base(const LowState& state) {
  at_joints_ = now_;
  for (int i = 0; i < joints_; ++i) joint_[static_cast<std::size_t>(i)].at_imu = state.joint_pos[i];
}

void Sensors::acknowledge() {
  by_gyro_ = now_;
  fastest_ = 0;
  // The joints of a damped robot may stand still to the last bit; an IMU never does.
  const bool joints = found_.signal == Signal::kNone || found_.signal == Signal::kJointPos ||
                      found_.signal == Signal::kJointVel;
  if (joints) found_ = convention_.found();
  restart_joints();
}

void Sensors::advance(const LowState& state, double dt) {
  advance_imu(state, dt);
  bool moved = false;
  for (int i = 0; i < joints_; ++i) {
    advance_joint(state, i, dt);
    const Joint& joint = joint_[static_cast<std::size_t>(i)];
    moved = moved || joint.position.seconds == 0 || joint.velocity.seconds == 0;
  }
  if (moved) at_joints_ = now_;
}

void Sensors::advance_imu(const LowState& state, double dt) {
  const auto& q = state.quat_wxyz;
  const Quaternion before = now_;
  now_ = unit({q[0], q[1], q[2], q[3]});
  Vector rate, by_rate, by_orientation = turn_between(before, now_);
  for (std::size_t i = 0; i < 3; ++i) {
    rate[i] = 0.5 * (static_cast<double>(last_.gyro[i]) + static_cast<double>(state.gyro[i]));
    by_rate[i] = rate[i] * dt;
    by_orientation[i] -= by_rate[i];
  }
  add(turned_, by_rate, dt);
  add(unreported_, by_orientation, dt);
  const bool turned = orientation_.see(differ(state.quat_wxyz, last_.quat_wxyz), dt);
  const bool rated = gyro_.see(differ(state.gyro, last_.gyro), dt);
  if (turned) turned_ = Vector{};
  if (rated) unreported_ = Vector{};
  if (acc_.see(differ(state.acc, last_.acc), dt)) up_at_acc_ = up_of(now_);
  if (turned || rated) {
    for (int i = 0; i < joints_; ++i) joint_[static_cast<std::size_t>(i)].at_imu = state.joint_pos[i];
  }
  compare(rate, dt);
}

/// Integrate the gyroscope's orientation, and pull it towards the measured one: the remaining difference is the
/// disagreement of the last `kCompareS`.
void Sensors::compare(const Vector& rate, double dt) {
  by_gyro_ = turned_by(by_gyro_, {rate[0] * dt, rate[1] * dt, rate[2] * dt});
  Vector left = turn_between(by_gyro_, now_);
  const double share = dt / (kCompareS + dt);
  for (double& part : left) part *= share;
  by_gyro_ = turned_by(by_gyro_, left);
  fastest_ = std::max(fastest_ / (1 + dt / kCompareS), length(rate));
}

void Sensors::advance_joint(const LowState& state, int i, double dt) {
  Joint& joint = joint_[static_cast<std::size_t>(i)];
  const JointSpec& spec = contract_->joints[static_cast<std::size_t>(i)];
  double moved = static_cast<double>(state.joint_pos[i]) - static_cast<double>(last_.joint_pos[i]);
  if (!spec.lower && !spec.upper) moved = std::remainder(moved, 2 * std::numbers::pi);  // a wheel begins again
  const double speed = 0.5 * (static_cast<double>(last_.joint_vel[i]) + static_cast<double>(state.joint_vel[i]));
  add(joint.moved, speed * dt, dt);
  add(joint.unreported, moved - speed * dt, dt);
  if (joint.position.see(differ(state.joint_pos[i], last_.joint_pos[i]), dt)) {
    joint.moved = 0;
    joint.has_effort = false;
  }
  if (joint.velocity.see(differ(state.joint_vel[i], last_.joint_vel[i]), dt)) joint.unreported = 0;
}

void Sensors::ask(const LowCommand& c) {
  for (int i = 0; i < joints_; ++i) {
    Joint& joint = joint_[static_cast<std::size_t>(i)];
    const double position = last_.joint_pos[i], velocity = last_.joint_vel[i];
    const double effort = static_cast<double>(c.tau[i]) + static_cast<double>(c.kp[i]) * (c.q[i] - position) +
                          static_cast<double>(c.kd[i]) * (c.dq[i] - velocity);
    joint.lowest = joint.has_effort ? std::min(joint.lowest, effort) : effort;
    joint.highest = joint.has_effort ? std::max(joint.highest, effort) : effort;
    joint.has_effort = true;
  }
}

const Sensors::Still& Sensors::still_of(const Finding& finding) const {
  const Joint& joint = joint_[static_cast<std::size_t>(std::max(finding.joint, 0))];
  switch (finding.signal) {
    case Signal::kImu: return orientation_.present ? orientation_ : gyro_;
    case Signal::kQuat: return orientation_;
    case Signal::kGyro: return gyro_;
    case Signal::kAcc: return acc_;
    case Signal::kJointVel: return joint.velocity;
    default: return joint.position;
  }
}

Finding Sensors::frozen_finding(Signal signal, int joint) const {
  Finding finding{Fault::kSensorFrozen, joint, 0, limits_.sensor_frozen_s, signal};
  finding.value = still_of(finding).seconds;
  return finding;
}

Finding Sensors::judge() const {
  // A finding stays until that sensor changes again, whether or not anything else moves meanwhile.
  if (found_.fault == Fault::kSensorFrozen && frozen(still_of(found_))) {
    return frozen_finding(found_.signal, found_.joint);
  }
  if (const Finding finding = judge_imu()) return finding;
  if (const Finding finding = judge_joints()) return finding;
  return judge_agreement();
}

Finding Sensors::judge_imu() const {
  const bool orientation = frozen(orientation_), gyro = frozen(gyro_);
  if ((orientation || gyro) && silent(orientation_) && silent(gyro_)) {
    bool moved = orientation && gyro && length(turned_) > kTurn;
    for (int i = 0; walks() && i < joints_ && !moved; ++i) {
      moved = std::abs(last_.joint_pos[i] - joint_[static_cast<std::size_t>(i)].at_imu) > kMove;
    }
    return moved ? frozen_finding(Signal::kImu, -1) : Finding{};
  }
  if (orientation && length(turned_) > kTurn) return frozen_finding(Signal::kQuat, -1);
  if (gyro && length(unreported_) > kTurn) return frozen_finding(Signal::kGyro, -1);
  const Vector up = up_of(now_);
  const double leaned = length({up[0] - up_at_acc_[0], up[1] - up_at_acc_[1], up[2] - up_at_acc_[2]});
  return frozen(acc_) && leaned > kTurn ? frozen_finding(Signal::kAcc, -1) : Finding{};
}

Finding Sensors::judge_joint(int i) const {
  const Joint& joint = joint_[static_cast<std::size_t>(i)];
  const JointSpec& spec = contract_->joints[static_cast<std::size_t>(i)];
  const bool moved = std::abs(joint.moved) > kMove;
  if (frozen(joint.position) && !silent(joint.velocity)) {
    return moved ? frozen_finding(Signal::kJointPos, i) : Finding{};
  }
  if (frozen(joint.position)) {  // at rest, or both are frozen
    const double swing = joint.has_effort ? joint.highest - joint.lowest : 0;
    const bool driven = swing > kEffort * spec.effort_limit && spec.effort_limit > 0;
    const bool frozen_both = (moved && joint.velocity.present) || (driven && !at_stop(spec, last_.joint_pos[i]));
    return frozen_both ? frozen_finding(Signal::kNone, i) : Finding{};
  }
  const bool unreported = joint.position.present && std::abs(joint.unreported) > kMove;
  return frozen(joint.velocity) && unreported ? frozen_finding(Signal::kJointVel, i) : Finding{};
}

Finding Sensors::judge_joints() const {
  Finding first;
  int present = 0, positions = 0, velocities = 0, both = 0;
  for (int i = 0; i < joints_; ++i) {
    const Joint& joint = joint_[static_cast<std::size_t>(i)];
    present += joint.position.present;
    positions += frozen(joint.position);
    velocities += frozen(joint.velocity);
    both += frozen(joint.position) && silent(joint.velocity);
    if (!first) first = judge_joint(i);
  }
  if (present < 2) return first;
  const bool turned = walks() && length(turn_between(at_joints_, now_)) > kTurn;
  if (both == present && (first || turned)) return frozen_finding(Signal::kJointPos, -1);
  const int same = first.signal == Signal::kJointPos ? positions : first.signal == Signal::kJointVel ? velocities : 0;
  return first && same == present ? frozen_finding(first.signal, -1) : first;
}

Finding Sensors::judge_agreement() const {
  if (!orientation_.present || !gyro_.present) return {};
  const double angle = length(turn_between(by_gyro_, now_)), limit = limits_.imu_disagree_rad + kLate * fastest_;
  return angle > limit ? Finding{Fault::kImuDisagrees, -1, angle, limit} : convention_.found();
}

}  // namespace robot_rl

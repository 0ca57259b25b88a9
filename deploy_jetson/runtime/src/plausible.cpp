// Bounds on values that no replay can check, the same as in robot_rl_deploy.plausible: gains, limits, periods and
// command ranges that no robot has are refused.
#include <cmath>
#include <numbers>
#include <tuple>

#include "contract_parts.h"

namespace robot_rl {
namespace {

constexpr double kMinControlPeriod = 5e-4, kMaxControlPeriod = 1.0, kMinPhysicsTimestep = 1e-5;
constexpr double kMaxPosition = 1e3, kMaxSpeed = 1e3, kMaxEffort = 1e4, kMaxCommandValue = 100.0;
constexpr double kOneDegree = std::numbers::pi / 180, kStiffDamping = 0.05, kMaxDamping = 0.5, kOnePercent = 0.01;
constexpr double kEffortMargin = 3.0, kEffortShare = 0.25;

void between(const std::string& where, double value, double low, double high) {
  if (low <= value && value <= high) return;
  refuse(where, shown(value), "no policy has it; it must be in [" + json_number(low) + ", " + json_number(high) + "]");
}

void check_limits(const JointSpec& joint) {
  const std::string where = "joint '" + joint.name + "': ";
  if (joint.lower) between(where + "lower", *joint.lower, -kMaxPosition, kMaxPosition);
  if (joint.upper) between(where + "upper", *joint.upper, -kMaxPosition, kMaxPosition);
  if (joint.velocity_limit) between(where + "velocity_limit", *joint.velocity_limit, -kMaxSpeed, kMaxSpeed);
  between(where + "effort_limit", joint.effort_limit, 0, kMaxEffort);
}

/// Check a joint with position targets: it has limits, and gains and effort limit fit each other.
void check_gains(const JointSpec& joint) {
  const std::string where = "joint '" + joint.name + "': ";
  for (const auto& [name, limit] :
       {std::pair{"lower", joint.lower}, {"upper", joint.upper}, {"velocity_limit", joint.velocity_limit}}) {
    if (!limit) refuse(where + name, "None", "a joint with position targets needs that limit");
  }
  if (joint.kp * kOneDegree > joint.effort_limit && joint.kd < kStiffDamping * joint.kp) {
    refuse(where + "kp", shown(joint.kp),
           "effort_limit is reached within a degree; " + json_number(joint.effort_limit / kOneDegree) +
               " is the most with a kd of " + json_number(joint.kd));
  }
  if (!(0 < joint.kd && joint.kd <= kMaxDamping * joint.kp)) {
    refuse(where + "kd", shown(joint.kd),
           "it must be more than 0 and at most 0.5 s of kp (" + json_number(joint.kp) + ")");
  }
  const double made = joint.kp * (*joint.upper - *joint.lower) + joint.kd * *joint.velocity_limit;
  if (joint.effort_limit > kEffortMargin * made) {
    refuse(where + "effort_limit", shown(joint.effort_limit),
           "gains and limits make " + json_number(made) + " at most");
  }
}

/// Check a joint with velocity targets: kd and effort limit fit each other and the speeds that are asked for.
void check_speed(const ActionSpec& action, const JointSpec& joint) {
  const std::string where = "joint '" + joint.name + "': ";
  if (!joint.velocity_limit) refuse(where + "velocity_limit", "None", "a joint with velocity targets needs that limit");
  const double fastest = *joint.velocity_limit, made = joint.kd * 2 * fastest;
  if (joint.kd * kOnePercent * fastest > joint.effort_limit) {
    refuse(where + "kd", shown(joint.kd),
           "effort_limit is reached within a hundredth of velocity_limit; " +
               json_number(joint.effort_limit / (kOnePercent * fastest)) + " is the most");
  }
  if (joint.effort_limit > kEffortMargin * made) {
    refuse(where + "effort_limit", shown(joint.effort_limit),
           "gains and limits make " + json_number(made) + " at most");
  }
  for (const auto& [name, value, when] :
       {std::tuple{"offset", action.offset, "0"}, std::tuple{"scale", action.scale, "1"}}) {
    if (std::abs(value) <= fastest) continue;
    refuse("action of '" + joint.name + "': " + name, shown(value),
           std::string("it turns so fast at an action of ") + when + "; velocity_limit is " + json_number(fastest));
  }
}

}  // namespace

void check_plausible(const Contract& contract) {
  between("control_period_s", contract.control_period_s, kMinControlPeriod, kMaxControlPeriod);
  if (contract.physics_timestep_s < kMinPhysicsTimestep) {
    refuse("physics_timestep_s", shown(contract.physics_timestep_s), "1e-05 s is the least");
  }
  for (const auto& joint : contract.joints) check_limits(joint);
  for (const auto& component : contract.command) {
    between("command '" + component.name + "': lower", component.lower, -kMaxCommandValue, kMaxCommandValue);
    between("command '" + component.name + "': upper", component.upper, -kMaxCommandValue, kMaxCommandValue);
  }
  for (const auto& action : contract.actions) {
    const auto& joint = contract.joints[static_cast<std::size_t>(action.joint_index)];
    if (action.kind == ActionKind::kPosition) {
      check_gains(joint);
    } else if (action.kind == ActionKind::kVelocity) {
      check_speed(action, joint);
    } else if (joint.kp > 0 && action.clip &&
               std::abs(action.scale) * *action.clip < kEffortShare * joint.effort_limit) {
      // A very small effort for a joint with gains indicates a position action declared as an effort.
      refuse("action of '" + action.joint + "': kind", "'effort'",
             "it makes " + json_number(std::abs(action.scale) * *action.clip) + " of " +
                 json_number(joint.effort_limit) + " at most");
    }
  }
}

}  // namespace robot_rl

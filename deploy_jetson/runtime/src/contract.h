// The policy contract: everything a runtime must know to feed a policy and to obey it. It is read as strictly as
// robot_rl_deploy.contract reads it: an unknown or missing field, a wrong type, a number that is not finite or a size
// that does not add up is a ContractError of one line, and both readers refuse the same files.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "error.h"

namespace robot_rl {

inline constexpr int kSchemaVersion = 1;
inline constexpr double kActionTolerance = 1e-4;  // in fp32

/// One joint; units of its coordinate: rad, N m and rad/s, or m, N and m/s.
struct JointSpec {
  std::string name;
  double default_pos = 0, kp = 0, kd = 0, effort_limit = 0;
  std::optional<double> velocity_limit, lower, upper;
};

/// What a target is: the position of the joint's PD controller, the speed of a joint with a kd alone, or an effort.
enum class ActionKind { kPosition, kVelocity, kEffort };
inline constexpr const char* kActionKinds[] = {"position", "velocity", "effort"};

/// One policy output: target = offset + scale * action, with |action| <= clip and |target - position| <= max_error.
struct ActionSpec {
  std::string joint;
  ActionKind kind = ActionKind::kPosition;
  double scale = 1, offset = 0;
  std::optional<double> clip, max_error;
  std::string command;   // component of the command that is added to the target; empty: none
  int joint_index = -1;  // among the contract's joints
  int commanded = -1;    // element of the observation that is that component; -1: none
};

/// The signal of a height scan.
inline constexpr std::string_view kHeightScan = "measured/height_scan";

/// The points of a height scan; see robot_rl_deploy.terms.GridSpec.
struct GridSpec {
  std::vector<double> size, offset;
  double resolution = 0;
};

/// One term of the observation: clip(transform(signal)) * scale.
struct ObservationSpec {
  std::string name, signal, transform, unit, frame;
  int size = 0, history = 1;
  double scale = 1;
  std::optional<std::pair<double, double>> clip;
  std::vector<int> joints;  // indices of the joints read; only of joint signals
  int place = -1;           // of its first value in LowState::measured; -1: no measured signal
  double frequency_hz = 0, gate_norm = 0, offset = 0;
  bool gated = false;  // by the command's norm
  std::optional<GridSpec> grid;
};

/// One message that every robot of a team sends the others; see robot_rl_deploy.messages.
struct MessageSpec {
  /// A measured signal that is this message of another robot.
  struct Received {
    std::string signal;
    int sender = 0;  // counted from this robot on: 0 is the next one of the team
    int place = -1;  // of its first value in LowState::measured
  };
  std::string name;
  int width = 0;
  double max_age_s = 0;
  std::vector<ObservationSpec> terms;
  std::vector<Received> received;
};

struct CommandSpec {
  std::string name;
  double lower = 0, upper = 0;
};

struct TrainingSpec {
  std::string run_id, task, git_commit;
  long long iteration = 0;
};

/// One layer of a network with a precision.
struct LayerSpec {
  std::string name, mode;             // the network's mode, or "fp32"
  std::optional<double> input_scale;  // step of the grid of its input, in int8 and fp8
};

/// The precision of a network; see robot_rl_deploy.precision.
struct PrecisionSpec {
  std::string mode;               // "int8", "fp8" or "bf16"
  int opset = 0;                  // of the network's file
  std::vector<LayerSpec> layers;  // in the order of computation
  double action_bound = 0;        // greatest difference that rounding in another order may make to an action

  /// Number of layers that are not in fp32.
  int rounded() const;
  /// Such as "int8: 3 of 4 layers, actions within 3.0e-04".
  std::string summary() const;
};

struct Contract {
  std::string robot;
  std::vector<JointSpec> joints;
  std::vector<ActionSpec> actions;
  std::vector<ObservationSpec> observations;
  int observation_size = 0, action_size = 0, state_size = 0;
  int measured_size = 0;  // values of all measured signals together
  int received_size = 0;  // of those that are messages of other robots, which come last
  double control_period_s = 0, physics_timestep_s = 0;
  std::vector<CommandSpec> command;
  std::vector<double> fallback_pose;  // in the joints' order
  TrainingSpec training;
  std::vector<std::string> team;           // robots that send each other messages; empty for one robot
  std::vector<MessageSpec> messages;       // what they send
  std::optional<PrecisionSpec> precision;  // nothing for a network in fp32

  /// Precision of the network: "fp32", "bf16", "fp8" or "int8".
  std::string mode() const { return precision ? precision->mode : "fp32"; }
  /// How far a target may be from the recorded one where an action may be so far from it, by the largest scale.
  double target_tolerance(double action_bound) const;

  /// Width of a signal by name, whether the policy reads it or not; of feet and what is measured 0 if
  /// it does not.
  int signal_size(std::string_view signal) const;
  /// The term that reads value `place` of LowState::measured; nullptr if none does.
  const ObservationSpec* measured_term(int place) const;
  /// Names of the signals that a robot has to deliver, in the order in which the terms first read them.
  std::vector<std::string> needed_signals() const;
};

/// Read a contract from the text of contract.json. Throws ContractError.
Contract read_contract(std::string_view text);

/// For every joint of the contract its index among the robot's joints. Throws ContractError if a name is missing,
/// extra or repeated.
std::vector<int> resolve_joints(const Contract& contract, std::span<const std::string> available);

}  // namespace robot_rl

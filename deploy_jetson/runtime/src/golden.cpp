#include "golden.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "contract_parts.h"
#include "json.h"
#include "npz.h"
#include "observe.h"

namespace robot_rl {
namespace {

using Arrays = std::map<std::string, NpyArray>;

std::vector<float> read_floats(const NpyArray& array, const std::string& name, int steps, int size) {
  if (array.type != "<f4" || array.shape != std::vector<long long>{steps, size}) {
    throw ContractError("golden.npz: " + name + " is " + array.shown() + "; it must be float32 (" +
                        std::to_string(steps) + ", " + std::to_string(size) + ")");
  }
  std::vector<float> values(array.data.size() / sizeof(float));
  std::memcpy(values.data(), array.data.data(), values.size() * sizeof(float));
  if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
    throw ContractError("golden.npz: " + name + " contains numbers that are not finite; export the bundle again");
  }
  return values;
}

std::vector<std::uint8_t> read_reset(const NpyArray& array) {
  const auto steps = array.shape.size() == 1 ? array.shape[0] : 0;
  if (array.type != "|b1" || steps < kMinGoldenSteps || steps > 1 << 20) {
    throw ContractError("golden.npz: reset is " + array.shown() + " of " + std::to_string(steps) + " steps; at least " +
                        std::to_string(kMinGoldenSteps) + " of bool");
  }
  std::vector<std::uint8_t> reset(static_cast<std::size_t>(steps));
  for (std::size_t i = 0; i < reset.size(); ++i) reset[i] = array.data[i] != std::byte{0};
  return reset;
}

/// How far the actions of each step may be off, with a precision; empty in fp32.
std::vector<float> read_bounds(const NpyArray* array, const Contract& contract, int steps) {
  const bool is_there = array != nullptr;
  if (is_there != contract.precision.has_value()) {
    throw ContractError("golden.npz: action_bound " +
                        (is_there ? "is there, for a policy in " + contract.mode() : std::string("is missing")) +
                        "; export the bundle again");
  }
  if (!is_there) return {};
  if (array->type != "<f4" || array->shape != std::vector<long long>{steps}) {
    throw ContractError("golden.npz: action_bound is " + array->shown() + "; it must be float32 (" +
                        std::to_string(steps) + ",)");
  }
  std::vector<float> bounds(static_cast<std::size_t>(steps));
  std::memcpy(bounds.data(), array->data.data(), bounds.size() * sizeof(float));
  const auto most = static_cast<float>(contract.precision->action_bound);
  for (const float bound : bounds) {
    if (bound > 0 && bound <= most) continue;  // a NaN is wrong, too
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(most));
    throw ContractError("golden.npz: action_bound must be in (0, " + std::string(text) +
                        "], the contract's; export it again");
  }
  return bounds;
}

void check_reset(const std::vector<std::uint8_t>& reset) {
  if (!reset[0] || std::count(reset.begin() + 1, reset.end(), 1) == 0) {
    throw ContractError("golden.npz: reset must be set at the first step and at least once inside");
  }
}

/// Refuse a sequence without standing, an end of the command's range or a tilted body; the steps that the
/// exporter adds are those of robot_rl_deploy.forced.
void check_coverage(const Golden& golden, const Contract& contract) {
  constexpr const char* kAgain = "; export the bundle again";
  if (const auto found = golden.signals.find("command"); found != golden.signals.end()) {
    const auto& values = found->second;
    const auto size = contract.command.size();
    bool is_zero = false;
    for (std::size_t begin = 0; begin < values.size() && !is_zero; begin += size) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
      is_zero = std::all_of(first, first + static_cast<std::ptrdiff_t>(size), [](float value) { return value == 0; });
    }
    if (!is_zero) throw ContractError(std::string("golden.npz: no step has a command of zero") + kAgain);
    for (std::size_t i = 0; i < size; ++i) {
      const auto& component = contract.command[i];
      float low = values[i], high = values[i];
      for (auto at = i; at < values.size(); at += size) {
        low = std::min(low, values[at]);
        high = std::max(high, values[at]);
      }
      if (high >= static_cast<float>(component.upper) && low <= static_cast<float>(component.lower)) continue;
      throw ContractError("golden.npz: the command '" + component.name + "' does not reach both of [" +
                          json_number(component.lower) + ", " + json_number(component.upper) + "]" + kAgain);
    }
  }
  if (const auto found = golden.signals.find("imu_quat_wxyz"); found != golden.signals.end()) {
    double down = -1;
    for (std::size_t at = 0; at + 3 < found->second.size(); at += 4) {
      const double x = found->second[at + 1], y = found->second[at + 2];
      down = std::max(down, 2 * (x * x + y * y) - 1);
    }
    if (down < -std::cos(kLeastTilt)) {
      throw ContractError("golden.npz: no step has a body that is tilted by " + json_number(kLeastTilt) + " rad" +
                          kAgain);
    }
  }
}

/// Description of an element of the observation, such as "'joint_pos'[3] 2 steps ago".
std::string observation_label(const Contract& contract, int column) {
  for (const auto& term : contract.observations) {
    const int width = term.size * term.history;
    if (column >= width) {
      column -= width;
      continue;
    }
    std::string label = "'" + term.name + "'[" + std::to_string(column % term.size) + "]";
    if (term.history > 1) label += " " + std::to_string(term.history - 1 - column / term.size) + " steps ago";
    return label;
  }
  return "[" + std::to_string(column) + "]";
}

/// The first difference in a sequence, and the largest error within tolerance.
struct Difference {
  std::string what;
  double tolerance;
  bool relative = false;  // to the value if that is above 1
  double largest = 0;

  template <class Label>
  void compare(std::span<const float> found, std::span<const float> right, int step, const Label& label) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double wanted = static_cast<double>(right[i]);
      const double scale = relative ? std::max(1.0, std::abs(wanted)) : 1.0;
      const double error = std::abs(static_cast<double>(found[i]) - wanted) / scale;
      if (!(error <= tolerance)) refuse(found[i], right[i], step, label(static_cast<int>(i)));  // a NaN is wrong, too
      largest = std::max(largest, error);
    }
  }

  [[noreturn]] void refuse(float found, float right, int step, const std::string& label) const {
    char numbers[160];
    std::snprintf(numbers, sizeof(numbers), " is %.9g at step %d, recorded was %.9g (tolerance %g)",
                  static_cast<double>(found), step, static_cast<double>(right), tolerance);
    throw ContractError("golden replay: " + what + " " + label + numbers +
                        "; this bundle must not move a robot, export it again");
  }
};

std::span<const float> row(const std::vector<float>& values, int step, int size) {
  return std::span(values).subspan(static_cast<std::size_t>(step) * static_cast<std::size_t>(size),
                                   static_cast<std::size_t>(size));
}

/// All observations of the sequence, compared before any of them goes into the network.
std::vector<float> replay_observations(const Bundle& bundle, Difference& difference) {
  const auto& [contract, golden] = std::tie(bundle.contract, bundle.golden);
  Observer observer(contract);
  LowState state;
  std::vector<float> command(contract.command.size()), observed(golden.observation.size());
  const auto label = [&](int column) { return observation_label(contract, column); };
  const auto width = static_cast<std::size_t>(contract.observation_size);
  for (int step = 0; step < golden.steps; ++step) {
    if (golden.reset[static_cast<std::size_t>(step)]) observer.reset();
    golden_state(golden, contract, step, state, command);
    const auto observation = std::span(observed).subspan(static_cast<std::size_t>(step) * width, width);
    observer.observe(state, command, observation);
    difference.compare(observation, row(golden.observation, step, contract.observation_size), step, label);
    observer.set_last_action(row(golden.action, step, contract.action_size));
  }
  return observed;
}

}  // namespace

Golden read_golden(std::span<const std::byte> file, const Contract& contract) {
  Arrays arrays = read_npz(file, "golden.npz");
  const auto take = [&arrays](const std::string& name) {
    const auto found = arrays.find(name);
    if (found == arrays.end())
      throw ContractError("golden.npz cannot be read ('" + name + "' is missing); export the bundle again");
    const auto array = found->second;
    arrays.erase(found);
    return array;
  };
  const auto reset = take("reset"), observation = take("observation"), action = take("action"),
             target = take("joint_target");
  const auto bounds = arrays.extract("action_bound");
  Arrays signals;
  for (const auto& [name, array] : arrays) signals.emplace(current_name(name), array);
  Golden golden;
  const auto needed = contract.needed_signals();
  std::string odd;
  for (const auto& [name, array] : signals) {
    if (std::find(needed.begin(), needed.end(), name) == needed.end()) odd += (odd.empty() ? "" : ", ") + name;
  }
  for (const auto& name : needed) {
    if (!signals.contains(name)) odd += (odd.empty() ? "" : ", ") + name;
  }
  if (!odd.empty())
    throw ContractError("golden.npz: the signals do not fit the contract, see " + odd + "; export the bundle again");
  golden.reset = read_reset(reset);
  golden.steps = static_cast<int>(golden.reset.size());
  for (const auto& name : needed) {
    golden.signals[name] = read_floats(signals.at(name), name, golden.steps, contract.signal_size(name));
  }
  golden.observation = read_floats(observation, "observation", golden.steps, contract.observation_size);
  golden.action = read_floats(action, "action", golden.steps, contract.action_size);
  golden.joint_target = read_floats(target, "joint_target", golden.steps, contract.action_size);
  check_reset(golden.reset);
  check_coverage(golden, contract);
  golden.action_bound = read_bounds(bounds.empty() ? nullptr : &bounds.mapped(), contract, golden.steps);
  return golden;
}

float clipped(const ActionSpec& spec, float action) {
  if (!spec.clip) return action;
  const auto bound = static_cast<float>(*spec.clip);
  return std::min(std::max(action, -bound), bound);
}

float stated_target(const ActionSpec& spec, float action, std::span<const float> observation) {
  const float target = clipped(spec, action) * static_cast<float>(spec.scale) + static_cast<float>(spec.offset);
  return spec.commanded < 0 ? target : target + observation[static_cast<std::size_t>(spec.commanded)];
}

namespace {

/// Where a recorded signal goes: a part of the state, or the command.
float* target_of(const Contract& contract, std::string_view name, LowState& state, std::span<float> command) {
  if (name == "joint_pos") return state.joint_pos;
  if (name == "joint_vel") return state.joint_vel;
  if (name == "imu_gyro") return state.gyro;
  if (name == "imu_quat_wxyz") return state.quat_wxyz;
  if (name == "imu_acc") return state.acc;
  if (name == "foot_contact") return state.foot_contact;
  if (name == "foot_force") return state.foot_force;
  for (const auto& term : contract.observations) {
    if (term.place >= 0 && term.signal == name) return state.measured + term.place;
  }
  return command.data();
}

}  // namespace

void golden_state(const Golden& golden, const Contract& contract, int step, LowState& state, std::span<float> command) {
  state = LowState{};
  state.sequence = static_cast<std::uint64_t>(step) + 1;
  state.joints = static_cast<std::int32_t>(contract.joints.size());
  state.feet = std::max(contract.signal_size("foot_contact"), contract.signal_size("foot_force"));
  state.measured_count = contract.measured_size;
  for (const auto& [name, values] : golden.signals) {
    const auto part = row(values, step, contract.signal_size(name));
    std::copy(part.begin(), part.end(), target_of(contract, name, state, command));
  }
}

ReplayReport replay_golden(const Bundle& bundle, Backend& backend, std::optional<double> action_tolerance) {
  const auto& contract = bundle.contract;
  const auto& golden = bundle.golden;
  Difference of_observation{"observation", kObservationTolerance, true},
      of_stated{"the contract's joint target", action_tolerance.value_or(kActionTolerance)},
      of_action{"action", action_tolerance.value_or(kActionTolerance)},
      of_target{"joint target", action_tolerance.value_or(kActionTolerance)};
  const auto observed = replay_observations(bundle, of_observation);
  const auto label = [&](int column) { return "'" + contract.actions[static_cast<std::size_t>(column)].joint + "'"; };
  const auto count = contract.actions.size();
  std::vector<float> action(count), target(count), memory(static_cast<std::size_t>(contract.state_size));
  for (int step = 0; step < golden.steps; ++step) {
    const auto recorded = row(golden.action, step, contract.action_size),
               wanted = row(golden.joint_target, step, contract.action_size);
    const auto seen = row(golden.observation, step, contract.observation_size);
    for (std::size_t i = 0; i < count; ++i) target[i] = stated_target(contract.actions[i], recorded[i], seen);
    of_stated.compare(target, wanted, step, label);
  }
  for (int step = 0; step < golden.steps; ++step) {
    if (golden.reset[static_cast<std::size_t>(step)]) std::fill(memory.begin(), memory.end(), 0.0f);
    if (!backend.run(row(observed, step, contract.observation_size), memory, action, target, memory)) {
      throw ContractError("golden replay: the network cannot be run at step " + std::to_string(step) + " (" +
                          backend.identity() + ")");
    }
    if (!golden.action_bound.empty() && !action_tolerance) {
      of_action.tolerance = static_cast<double>(golden.action_bound[static_cast<std::size_t>(step)]);
      of_target.tolerance = contract.target_tolerance(of_action.tolerance);
    }
    of_action.compare(action, row(golden.action, step, contract.action_size), step, label);
    of_target.compare(target, row(golden.joint_target, step, contract.action_size), step, label);
  }
  ReplayReport report;
  report.steps = golden.steps;
  report.resets = static_cast<int>(std::count(golden.reset.begin(), golden.reset.end(), 1));
  report.observation_error = of_observation.largest;
  report.action_error = of_action.largest;
  report.joint_target_error = std::max(of_stated.largest, of_target.largest);
  return report;
}

}  // namespace robot_rl

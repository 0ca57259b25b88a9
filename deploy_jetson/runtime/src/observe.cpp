#include "observe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace robot_rl {
namespace {

/// The sum of squares in NumPy's order of summation: sequential below eight values, else with eight partial sums.
float squared_norm(std::span<const float> values) {
  const auto count = values.size();
  float sum = 0.0f;
  std::size_t at = 0;
  if (count >= 8) {
    float part[8];
    for (std::size_t i = 0; i < 8; ++i) part[i] = values[i] * values[i];
    for (at = 8; at + 8 <= count; at += 8) {
      for (std::size_t i = 0; i < 8; ++i) part[i] += values[at + i] * values[at + i];
    }
    sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
  for (; at < count; ++at) sum += values[at] * values[at];
  return sum;
}

/// The direction of gravity in the base frame, R^T (0, 0, -1).
void projected_gravity(const float* quat_wxyz, float* value) {
  const float w = quat_wxyz[0], x = quat_wxyz[1], y = quat_wxyz[2], z = quat_wxyz[3];
  value[0] = 2.0f * (w * y - x * z);
  value[1] = -2.0f * (y * z + w * x);
  value[2] = 2.0f * (x * x + y * y) - 1.0f;
}

const float* plain_signal(const LowState& state, const ObservationSpec& term) {
  if (term.place >= 0) return state.measured + term.place;
  const std::string_view signal = term.signal;
  if (signal == "imu_gyro") return state.gyro;
  if (signal == "imu_acc") return state.acc;
  if (signal == "imu_quat_wxyz") return state.quat_wxyz;
  if (signal == "foot_contact") return state.foot_contact;
  return state.foot_force;
}

/// NaN stays NaN, and a zero keeps its sign, as in NumPy.
float clipped(float value, float low, float high) { return value < low ? low : value > high ? high : value; }

}  // namespace

Observer::Observer(const Contract& contract) : contract_(&contract) {
  std::size_t widest = 1;
  for (const auto& term : contract.observations) {
    const auto size = static_cast<std::size_t>(term.size);
    history_.emplace_back(size * static_cast<std::size_t>(term.history), 0.0f);
    widest = std::max(widest, size);
  }
  for (const auto& joint : contract.joints) default_pos_.push_back(static_cast<float>(joint.default_pos));
  last_action_.assign(contract.actions.size(), 0.0f);
  value_.assign(widest, 0.0f);
}

void Observer::reset() {
  fresh_ = true;
  steps_ = 0;
  std::fill(last_action_.begin(), last_action_.end(), 0.0f);
}

void Observer::set_last_action(std::span<const float> action) {
  std::copy_n(action.begin(), std::min(action.size(), last_action_.size()), last_action_.begin());
}

void Observer::phase(const ObservationSpec& term, std::span<const float> command, float* value) const {
  const double turns = static_cast<double>(steps_) * (term.frequency_hz * contract_->control_period_s);
  constexpr double kTurn = 2 * 3.14159265358979323846;
  const double angle = kTurn * (turns - std::floor(turns));
  value[0] = static_cast<float>(std::sin(angle));
  value[1] = static_cast<float>(std::cos(angle));
  if (term.gated && std::sqrt(squared_norm(command)) < static_cast<float>(term.gate_norm)) value[0] = value[1] = 0.0f;
}

void Observer::observe(const LowState& state, std::span<const float> command, std::span<float> observation) {
  auto out = observation.begin();
  for (std::size_t index = 0; index < history_.size(); ++index) {
    const auto& term = contract_->observations[index];
    const auto size = static_cast<std::size_t>(term.size);
    value_of(term, state, command);
    if (term.clip) {
      const auto low = static_cast<float>(term.clip->first), high = static_cast<float>(term.clip->second);
      for (std::size_t i = 0; i < size; ++i) value_[i] = clipped(value_[i], low, high);
    }
    auto& history = history_[index];
    const auto older = history.size() - size;
    std::memmove(history.data(), history.data() + size, older * sizeof(float));
    const auto scale = static_cast<float>(term.scale);
    for (std::size_t i = 0; i < size; ++i) history[older + i] = value_[i] * scale;
    if (fresh_) {
      for (std::size_t at = 0; at < older; ++at) history[at] = history[older + at % size];
    }
    out = std::copy(history.begin(), history.end(), out);
  }
  fresh_ = false;
  ++steps_;
}

void Observer::value_of(const ObservationSpec& term, const LowState& state, std::span<const float> command) {
  const auto size = static_cast<std::size_t>(term.size);
  if (term.transform == "sin_cos_phase") return phase(term, command, value_.data());
  if (term.transform == "projected_gravity") return projected_gravity(state.quat_wxyz, value_.data());
  if (term.signal == "joint_pos" || term.signal == "joint_vel") return joint_value(term, state);
  if (term.signal == "command" || term.signal == "last_action") {
    const auto source = term.signal == "command" ? command : std::span<const float>(last_action_);
    std::copy_n(source.begin(), size, value_.begin());
    return;
  }
  std::copy_n(plain_signal(state, term), size, value_.begin());
  if (term.transform != "minus_offset") return;
  const auto offset = static_cast<float>(term.offset);
  for (std::size_t i = 0; i < size; ++i) value_[i] = value_[i] - offset;
}

void Observer::joint_value(const ObservationSpec& term, const LowState& state) {
  const float* source = term.signal == "joint_pos" ? state.joint_pos : state.joint_vel;
  const auto count = term.joints.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto joint = static_cast<std::size_t>(term.joints[i]);
    const float value = source[joint];
    if (term.transform == "sin_cos") {
      value_[i] = static_cast<float>(std::sin(static_cast<double>(value)));
      value_[count + i] = static_cast<float>(std::cos(static_cast<double>(value)));
    } else {
      value_[i] = term.transform == "minus_default" ? value - default_pos_[joint] : value;
    }
  }
}

}  // namespace robot_rl

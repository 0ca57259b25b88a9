// The observation vector from raw robot signals, with the same float32 operations as robot_rl_deploy.observe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "contract.h"
#include "types.h"

namespace robot_rl {

/// Builds the observations of one robot. Nothing is allocated after the constructor.
class Observer {
 public:
  explicit Observer(const Contract& contract);
  /// Reset: clock at 0, last action 0, history filled with the next value.
  void reset();
  /// Build the next observation (observation_size) and advance clock and history by one control step.
  /// `command` has as many components as the contract's. `state` holds what the contract needs.
  void observe(const LowState& state, std::span<const float> command, std::span<float> observation);
  /// The action (action_size), as clipped, that the next observation shows.
  void set_last_action(std::span<const float> action);
  std::int64_t steps() const { return steps_; }

 private:
  void phase(const ObservationSpec& term, std::span<const float> command, float* value) const;
  void value_of(const ObservationSpec& term, const LowState& state, std::span<const float> command);
  void joint_value(const ObservationSpec& term, const LowState& state);
  const Contract* contract_;
  std::vector<std::vector<float>> history_;
  std::vector<float> default_pos_, last_action_, value_;
  std::int64_t steps_ = 0;
  bool fresh_ = true;
};

}  // namespace robot_rl

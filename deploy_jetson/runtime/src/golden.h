// The golden sequence: raw robot states, and the observation, action and target that each must give.
#pragma once

#include <cstddef>
#include <span>

#include "bundle.h"
#include "types.h"

namespace robot_rl {

inline constexpr int kMinGoldenSteps = 200;
inline constexpr double kObservationTolerance = 1e-6;
inline constexpr double kLeastTilt = 0.45;  // of the body that is tilted most [rad]

/// Read golden.npz and check that it fits the contract. Throws ContractError.
Golden read_golden(std::span<const std::byte> file, const Contract& contract);

/// The action within the bound that the contract states.
float clipped(const ActionSpec& spec, float action);

/// The target as the contract states it.
float stated_target(const ActionSpec& spec, float action, std::span<const float> observation);

/// The state of one step of the sequence, and the command of that step.
void golden_state(const Golden& golden, const Contract& contract, int step, LowState& state, std::span<float> command);

}  // namespace robot_rl

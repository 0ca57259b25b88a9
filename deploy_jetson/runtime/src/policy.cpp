#include "policy.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "golden.h"
#include "rt.h"

namespace robot_rl {
namespace {

/// The target within the largest error from the measured position: what is not finite stays, for the safety layer.
float limited(const ActionSpec& action, float target, const LowState& state) noexcept {
  if (!action.max_error || !std::isfinite(target)) return target;
  const float at = state.joint_pos[action.joint_index], most = static_cast<float>(*action.max_error);
  return std::min(std::max(target, at - most), at + most);
}

}  // namespace

Policy::Policy(const Contract& contract, Backend& backend, const Exploration& exploration)
    : contract_(&contract),
      backend_(&backend),
      exploration_(exploration),
      observer_(contract),
      observation_(static_cast<std::size_t>(contract.observation_size)),
      memory_(static_cast<std::size_t>(contract.state_size)),
      action_(static_cast<std::size_t>(contract.action_size)),
      target_(static_cast<std::size_t>(contract.action_size)),
      clipped_(static_cast<std::size_t>(contract.action_size)) {
  if (contract.action_size > kMaxJoints) {
    throw ContractError("layout.action_size: " + std::to_string(contract.action_size) + "; this runtime has room for " +
                        std::to_string(kMaxJoints));
  }
}

void Policy::step(const LowState& state, std::span<const float> command, bool reset, PolicyOutput& out) noexcept {
  out = PolicyOutput{};
  out.begin_ns = now_ns();
  out.step = steps_++;
  out.state_sequence = state.sequence;
  out.state_robot_time_ns = state.robot_time_ns;
  out.state_receive_time_ns = state.receive_time_ns;
  out.reset = reset;
  out.actions = contract_->action_size;
  if (reset) {
    observer_.reset();
    std::fill(memory_.begin(), memory_.end(), 0.0f);
  }
  observer_.observe(state, command, observation_);
  out.observed_ns = now_ns();
  out.ok = backend_->run(observation_, memory_, action_, target_, memory_);
  if (out.ok) {
    if (exploration_.std > 0) {
      explore(out.step);
      observer_.set_last_action(clipped_);
    } else {
      observer_.set_last_action(action_);
    }
    std::copy(action_.begin(), action_.end(), out.action);
    for (std::size_t k = 0; k < target_.size(); ++k) out.target[k] = limited(contract_->actions[k], target_[k], state);
  }
  out.done_ns = now_ns();
}

/// Add the noise of this step to the actions. A target is what the contract states for the action with its noise; the
/// next observation shows that action as clipped, as in training.
void Policy::explore(std::uint64_t step) noexcept {
  for (std::size_t k = 0; k < action_.size(); ++k) {
    const ActionSpec& spec = contract_->actions[k];
    if (!exploration_.in_backend) {
      const double noise = exploration_.std * standard_normal(exploration_.seed, step, k);
      action_[k] = static_cast<float>(static_cast<double>(action_[k]) + noise);
      target_[k] = stated_target(spec, action_[k], observation_);
    }
    clipped_[k] = clipped(spec, action_[k]);
  }
}

}  // namespace robot_rl

// One control step of the policy: observation and inference. Owned by the policy's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend.h"
#include "explore.h"
#include "observe.h"
#include "types.h"

namespace robot_rl {

/// Result of a control step; passed by value.
struct PolicyOutput {
  std::uint64_t step = 0;             // counts control steps since start
  std::uint64_t state_sequence = 0;
  std::int64_t state_robot_time_ns = 0, state_receive_time_ns = 0;
  std::int64_t begin_ns = 0, observed_ns = 0, done_ns = 0;
  bool reset = false;                 // the policy was reset before this step
  bool ok = false;                    // the network ran
  std::int32_t actions = 0;
  float action[kMaxJoints] = {};
  float target[kMaxJoints] = {};
};

class Policy {
 public:
  Policy(const Contract& contract, Backend& backend, const Exploration& exploration = {});
  /// Observe and infer. `reset`: reset the policy before. Allocates nothing.
  void step(const LowState& state, std::span<const float> command, bool reset, PolicyOutput& out) noexcept;
  /// Warm the network for the next step; does not change its results.
  void rehearse() noexcept { backend_->rehearse(); }
  /// The observation of the last step (observation_size), for the log.
  std::span<const float> observation() const { return observation_; }

 private:
  void explore(std::uint64_t step) noexcept;

  const Contract* contract_;
  Backend* backend_;
  Exploration exploration_;
  Observer observer_;
  std::vector<float> observation_, memory_, action_, target_;
  std::vector<float> clipped_;  // the actions with their noise, as the next observation shows them
  std::uint64_t steps_ = 0;
};

}  // namespace robot_rl

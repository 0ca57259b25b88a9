// Test of a network with extreme observations: actions stay within the contract's clip, and targets follow from them.
#pragma once

#include "backend.h"

namespace robot_rl {

/// Amplitude and tolerances of the test.
struct ProbeLimits {
  double amplitude = 1e4;   // largest multiple of what a signal reaches on a robot
  double tolerance = 1e-4;  // of targets, relative if they are above 1
  double clip_slack = 0;    // of actions beyond their clip, relative to it
};

/// Run the network on the observations of robot_rl_deploy.probe. Throws ContractError if an output is not finite, an
/// action exceeds its clip, or a target does not follow from it.
void probe_network(const Contract& contract, Backend& backend, const ProbeLimits& limits);

}  // namespace robot_rl

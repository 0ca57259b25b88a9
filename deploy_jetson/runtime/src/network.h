// Inputs and outputs of a policy's network, for every backend: names and widths, each (1, width) float32.
#pragma once

#include <string>
#include <vector>

#include "contract.h"

namespace robot_rl {

/// One input or output.
struct Node {
  std::string name;
  int width = 0;
};

/// "observation" and, of a policy with a memory, "state".
std::vector<Node> network_inputs(const Contract& contract);
/// "action", "joint_target" and, of a policy with a memory, "state_out".
std::vector<Node> network_outputs(const Contract& contract);

/// An input or output as a network declares it; a width that is not fixed is -1.
struct FoundNode {
  std::string name, type;
  std::vector<long long> shape;
};

/// Throws ContractError if names, their order, types or widths are not those of the contract.
void check_nodes(const std::vector<FoundNode>& found, const std::vector<Node>& wanted);

}  // namespace robot_rl

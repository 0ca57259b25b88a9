// What differs between the contracts of two bundles.
#pragma once

#include <string>

namespace robot_rl {

/// The first difference between two texts of contract.json in anything but the description of the training run, as
/// "joints[3].kp is 40.0, the running policy has 20.0"; empty if there is none. Throws ContractError: no JSON.
std::string contract_difference(const std::string& running, const std::string& next);

}  // namespace robot_rl

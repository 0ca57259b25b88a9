#include "backend.h"

#include <vector>

#include "network.h"

namespace robot_rl {

namespace {

std::string shown(const std::vector<long long>& shape) {
  std::vector<std::string> texts;
  for (const auto size : shape) texts.push_back(size < 0 ? "N" : std::to_string(size));
  return "(" + joined(texts) + ")";
}

}  // namespace

void Backend::warm(int runs) {
  const std::vector<float> observation(contract_->observation_size), state(contract_->state_size);
  std::vector<float> action(contract_->action_size), target(contract_->action_size), after(contract_->state_size);
  for (int i = 0; i < runs; ++i) {
    if (!run(observation, state, action, target, after)) {
      throw ContractError("policy.onnx cannot be run by " + identity() + "; export the bundle again");
    }
  }
}

void check_precision(const Contract& contract, const BackendOptions& options) {
  const auto& precision = options.precision;
  if (!contract.precision || precision == "fp32" || precision == "auto" || precision == contract.mode()) return;
  throw UserError("--precision=" + precision + ": the bundle's precision is " + contract.mode() +
                  ", and its network runs in no other; leave it out");
}

void refuse_precision(const Contract& contract, const std::string& backend, const std::string& why,
                      const std::string& instead) {
  throw ContractError("policy.onnx: the bundle's precision is " + contract.mode() + ", and " + backend + " " + why +
                      "; take " + instead + ", or a bundle in fp32");
}

std::vector<Node> network_inputs(const Contract& contract) {
  std::vector<Node> nodes = {{"observation", contract.observation_size}};
  if (contract.state_size) nodes.push_back({"state", contract.state_size});
  return nodes;
}

std::vector<Node> network_outputs(const Contract& contract) {
  std::vector<Node> nodes = {{"action", contract.action_size}, {"joint_target", contract.action_size}};
  if (contract.state_size) nodes.push_back({"state_out", contract.state_size});
  return nodes;
}

void check_nodes(const std::vector<FoundNode>& found, const std::vector<Node>& wanted) {
  std::vector<std::string> names, right;
  for (const auto& node : found) names.push_back(node.name);
  for (const auto& node : wanted) right.push_back(node.name);
  if (names != right) {
    throw ContractError("policy.onnx: the names are " + joined(names) + "; a policy has " + joined(right));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& node = found[i];
    if (node.type != "float" || node.shape.size() != 2 || node.shape[1] != wanted[i].width ||
        (node.shape[0] != 1 && node.shape[0] >= 0)) {
      throw ContractError("policy.onnx: '" + node.name + "' is " + node.type + " " + shown(node.shape) +
                          "; the contract needs float (N, " + std::to_string(wanted[i].width) + ")");
    }
  }
}

}  // namespace robot_rl

// The operators allowed in a policy's network: they treat every row of a batch by itself, and nothing is hidden. The
// rules are those of robot_rl_deploy.network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace robot_rl {

/// A tensor that is part of a network's file.
struct OnnxTensor {
  static constexpr std::uint64_t kFloat = 1, kInt64 = 7;
  std::string name;
  std::uint64_t type = 0;
  std::vector<std::int64_t> dims, integers;  // the latter of int64 only
};

struct OnnxAttribute {
  std::string name;
  std::int64_t integer = 0;
  std::optional<OnnxTensor> tensor;
};

struct OnnxNode {
  std::string type, name;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
};

/// Refuse a network with other operators than the exporter's, or with one that mixes the rows of a batch. Throws
/// ContractError that names the operator.
void check_operators(const std::vector<OnnxNode>& nodes, const std::vector<OnnxTensor>& initializers,
                     const std::vector<std::string>& inputs);

}  // namespace robot_rl

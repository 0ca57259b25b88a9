// The operators allowed in a policy's network: they treat every row of a batch by itself, and nothing is hidden. The
// rules are those of robot_rl_deploy.network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract.h"

namespace robot_rl {

/// A tensor that is part of a network's file.
struct OnnxTensor {
  static constexpr std::uint64_t kFloat = 1, kInt8 = 3, kInt64 = 7, kBfloat16 = 16, kFloat8 = 17;  // e4m3fn
  std::string name;
  std::uint64_t type = 0;
  std::vector<std::int64_t> dims, integers;  // the latter of int64 only
  std::span<const std::byte> raw;            // within the file; empty if the values are not stored in that way
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

/// A network without anything that its operators do not need.
struct OnnxGraph {
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<std::string> inputs;
  std::int64_t opset = 0;
};

/// Refuse a network with other operators than the exporter's, with one that mixes the rows of a batch, or with other
/// layers than those of `precision`; nullptr for a network in fp32. Throws ContractError that names the operator or
/// the layer.
void check_operators(const OnnxGraph& graph, const PrecisionSpec* precision);

}  // namespace robot_rl

// Check of a network's file before any library opens it: it must be one plain chain of operators, all inside the file,
// with the inputs and outputs of the contract.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "contract.h"

namespace robot_rl {

/// Refuse a network that reaches beyond its file (weights elsewhere, operators or functions of its own, graphs within
/// graphs), that has other operators than a policy (onnx_operators.h), other inputs and outputs than the
/// contract or other layers than its precision, or that was exported with another contract: it contains the hash of
/// contract.json. Throws ContractError.
void check_model(std::span<const std::byte> model, const Contract& contract, const std::string& contract_hash);

/// Only the first two of these checks, for a network in fp32: parts beyond the file, and operators.
void refuse_foreign_parts(std::span<const std::byte> model);

}  // namespace robot_rl

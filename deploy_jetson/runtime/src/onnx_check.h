// A look at a network's file before any library opens it: it must be one plain chain of operators, all inside the file,
// with the inputs and outputs that the contract asks for.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "contract.h"

namespace robot_rl {

/// Refuse a network that reaches beyond its file (weights elsewhere, operators or functions of its own, graphs within
/// graphs), that is of other operators than a policy's (onnx_operators.h), whose inputs and outputs are not the
/// contract's, or that was exported with another contract: the hash of contract.json is inside. Throws ContractError.
void check_model(std::span<const std::byte> model, const Contract& contract, const std::string& contract_hash);

/// The first of these checks alone, the operators among them.
void refuse_foreign_parts(std::span<const std::byte> model);

}  // namespace robot_rl

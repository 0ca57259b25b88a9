#include "onnx_operators.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "error.h"

namespace robot_rl {
namespace {

const std::set<std::string_view>& unary() {
  static const std::set<std::string_view> kNames = {"Elu",  "Erf",  "Gelu",    "Identity", "LeakyRelu", "Mish", "Neg",
                                                    "Relu", "Selu", "Sigmoid", "Softplus", "Softsign",  "Sqrt", "Tanh"};
  return kNames;
}

const std::set<std::string_view>& elementwise() {
  static const std::set<std::string_view> kNames = {"Add", "Sub", "Mul", "Div", "Max", "Min", "Clip"};
  return kNames;
}

/// Kind of a value: it depends on no input, or it has a row for each robot along its first axis.
struct Value {
  bool rows = false;
  int rank = 0;  // of rows
  std::vector<std::int64_t> dims, integers;
  bool operator==(const Value& other) const {
    return rows && other.rows ? rank == other.rank
                              : rows == other.rows && dims == other.dims && integers == other.integers;
  }
};

using Operands = std::vector<const Value*>;  // nullptr if an operand is left out

Value rows_of(int rank) {
  Value value;
  value.rows = true;
  value.rank = rank;
  return value;
}

Value fixed(const OnnxTensor& tensor) {
  if (tensor.type != OnnxTensor::kFloat && tensor.type != OnnxTensor::kInt64) {
    throw ContractError("policy.onnx: '" + tensor.name + "' is of type " + std::to_string(tensor.type) +
                        "; weights are float32");
  }
  Value value;
  value.dims = tensor.dims;
  if (tensor.type == OnnxTensor::kFloat) return value;
  std::int64_t count = 1;
  for (const auto size : tensor.dims) {
    if (size < 0 || (size && count > (1 << 20) / size)) count = -1;
    if (count < 0) break;
    count *= size;
  }
  if (count != static_cast<std::int64_t>(tensor.integers.size())) {
    throw ContractError("policy.onnx: '" + tensor.name + "' is damaged; export the bundle again");
  }
  value.integers = tensor.integers;
  return value;
}

bool is_fixed(const Value* value) { return !value || !value->rows; }
bool all_fixed(const Operands& operands, std::size_t from) {
  return std::all_of(operands.begin() + static_cast<std::ptrdiff_t>(std::min(from, operands.size())), operands.end(),
                     is_fixed);
}

/// Whether a value is fixed and the same for every row: at most one axis, or a first one of length 1.
bool is_flat(const Value* value) {
  return value && !value->rows && (value->dims.size() < 2 || (value->dims.size() == 2 && value->dims[0] == 1));
}

/// Whether an axis of rows is not the first.
bool within(const Value& value, std::int64_t axis) {
  return value.rows && (axis == -1 || (1 <= axis && axis < value.rank));
}

std::int64_t integer_of(const OnnxNode& node, std::string_view name) {
  std::int64_t integer = 0;
  for (const auto& attribute : node.attributes) {
    if (attribute.name == name) integer = attribute.integer;
  }
  return integer;
}

std::vector<std::int64_t> integers_of(const Operands& operands, std::size_t index) {
  if (index >= operands.size() || !operands[index] || operands[index]->rows) return {};
  return operands[index]->integers;
}

std::optional<Value> combine(const Operands& operands) {
  const Value *rows = nullptr, *longest = nullptr;
  for (const auto* value : operands) {
    if (!value) continue;
    if (value->rows) {
      if (rows && rows->rank != value->rank) return std::nullopt;
      rows = value;
    } else {
      if (!is_flat(value)) return std::nullopt;
      if (!longest || value->dims.size() > longest->dims.size()) longest = value;
    }
  }
  return rows ? *rows : *longest;
}

std::optional<Value> reshape(const Operands& operands) {
  const auto sizes = integers_of(operands, 1);
  if (!operands[0]->rows || operands.size() != 2 || sizes.size() < 2 || sizes[0] != -1) return std::nullopt;
  if (*std::min_element(sizes.begin() + 1, sizes.end()) < 1) return std::nullopt;
  return rows_of(static_cast<int>(sizes.size()));
}

bool keeps_rows(const OnnxNode& node, const Operands& operands) {
  const Value& first = *operands[0];
  const auto count = operands.size();
  const bool one_more = count == 2 && operands[1] && !operands[1]->rows;
  if (node.type == "Gemm") {
    return first == rows_of(2) && !integer_of(node, "transA") && (count == 2 || count == 3) && operands[1] &&
           all_fixed(operands, 1) && (count == 2 || is_flat(operands[2]));
  }
  if (node.type == "MatMul") return first == rows_of(2) && one_more && operands[1]->dims.size() == 2;
  if (node.type == "Conv") return first == rows_of(4) && count > 1 && all_fixed(operands, 1);
  if (node.type == "Split") return within(first, integer_of(node, "axis")) && all_fixed(operands, 1);
  if (node.type == "Gather") {
    return one_more && operands[1]->dims.size() == 1 && within(first, integer_of(node, "axis"));
  }
  if (node.type == "Concat") {
    return within(first, integer_of(node, "axis")) &&
           std::all_of(operands.begin(), operands.end(), [&](const Value* value) { return value && *value == first; });
  }
  const auto axes = integers_of(operands, 3);  // of Slice
  return !axes.empty() && all_fixed(operands, 1) &&
         std::all_of(axes.begin(), axes.end(), [&](std::int64_t axis) { return within(first, axis); });
}

/// Result of an operator; nothing if it is not as the exporter writes it.
std::optional<Value> result_of(const OnnxNode& node, const Operands& operands) {
  if (node.type == "Constant") {
    const bool right = operands.empty() && node.attributes.size() == 1 && node.attributes[0].name == "value" &&
                       node.attributes[0].tensor;
    return right ? std::optional(fixed(*node.attributes[0].tensor)) : std::nullopt;
  }
  static const std::set<std::string_view> kOthers = {"Gemm",   "MatMul", "Conv",   "Reshape",
                                                     "Concat", "Slice",  "Gather", "Split"};
  const bool is_unary = unary().contains(node.type), is_elementwise = elementwise().contains(node.type);
  if (!is_unary && !is_elementwise && !kOthers.contains(node.type)) {
    throw ContractError("policy.onnx: the operator " + node.type + " is not allowed; export the bundle again");
  }
  if (operands.empty() || !operands[0]) return std::nullopt;
  if (is_unary) return operands.size() == 1 ? std::optional(*operands[0]) : std::nullopt;
  if (is_elementwise) return combine(operands);
  if (node.type == "Reshape") return reshape(operands);
  return keeps_rows(node, operands) ? std::optional(*operands[0]) : std::nullopt;
}

}  // namespace

void check_operators(const std::vector<OnnxNode>& nodes, const std::vector<OnnxTensor>& initializers,
                     const std::vector<std::string>& inputs) {
  std::map<std::string, Value, std::less<>> values;
  for (const auto& tensor : initializers) values[tensor.name] = fixed(tensor);
  for (const auto& name : inputs) values.try_emplace(name, rows_of(2));
  for (const auto& node : nodes) {
    Operands operands;
    for (const auto& name : node.inputs) {
      const auto found = values.find(name);
      if (!name.empty() && found == values.end()) {
        throw ContractError("policy.onnx: " + node.type + " reads '" + name +
                            "', which nothing computes; export it again");
      }
      operands.push_back(name.empty() ? nullptr : &found->second);
    }
    const auto result = result_of(node, operands);
    if (!result) {
      throw ContractError("policy.onnx: " + node.type + " '" + node.name +
                          "' is not as the exporter writes it, it could mix the rows of a batch; export the bundle "
                          "again");
    }
    for (const auto& name : node.outputs) {
      if (values.contains(name)) {
        throw ContractError("policy.onnx: '" + name + "' is computed twice; export the bundle again");
      }
      if (!name.empty()) values.emplace(name, *result);
    }
  }
}

}  // namespace robot_rl

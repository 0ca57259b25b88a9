#include "onnx_operators.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
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
  std::uint64_t type = OnnxTensor::kFloat;
  bool rounded = false;                // by the network's precision
  float scale = 0;                     // of the grid of rounded rows; 0 in bf16
  std::span<const std::byte> raw;      // of a fixed value of at most one axis, with a precision
  std::span<const std::byte> content;  // of a fixed value in the type of a precision
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

bool has_grid(const PrecisionSpec& precision) { return precision.mode != "bf16"; }

/// Type of the values of a precision; 0 without one.
std::uint64_t type_of(const PrecisionSpec* precision) {
  if (!precision) return 0;
  if (precision->mode == "int8") return OnnxTensor::kInt8;
  return precision->mode == "fp8" ? OnnxTensor::kFloat8 : OnnxTensor::kBfloat16;
}

Value fixed(const OnnxTensor& tensor, const PrecisionSpec* precision) {
  if (tensor.type != OnnxTensor::kFloat && tensor.type != OnnxTensor::kInt64 &&
      !(precision && tensor.type == type_of(precision))) {
    throw ContractError("policy.onnx: '" + tensor.name + "' is of type " + std::to_string(tensor.type) +
                        "; weights are float32" + (precision ? " or " + precision->mode : ""));
  }
  Value value;
  value.dims = tensor.dims;
  value.type = tensor.type;
  if (precision && tensor.type == type_of(precision)) value.content = tensor.raw;
  if (precision && tensor.dims.size() < 2) value.raw = tensor.raw;
  if (tensor.type != OnnxTensor::kInt64) return value;
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

/// Whether a value is fixed and the same for every row: of fewer axes than the rows, or with a first one of 1.
bool is_flat(const Value* value, std::size_t rank = 2) {
  return value && !value->rows && (value->dims.size() < rank || (value->dims.size() == rank && value->dims[0] == 1));
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
      if (!longest || value->dims.size() > longest->dims.size()) longest = value;
    }
  }
  const auto rank = rows ? static_cast<std::size_t>(rows->rank) : 2;
  const auto right = [rank](const Value* value) { return !value || value->rows || is_flat(value, rank); };
  if (!std::all_of(operands.begin(), operands.end(), right)) return std::nullopt;
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

/// The rounding of a network's precision: its operators and types, and the layers that were found.
class Rounding {
 public:
  explicit Rounding(const PrecisionSpec* precision) : precision_(precision), type_(type_of(precision)) {}

  bool has(std::string_view op) const {
    if (!precision_) return false;
    return has_grid(*precision_) ? op == "QuantizeLinear" || op == "DequantizeLinear" : op == "Cast";
  }

  /// Result of one of these operators; nothing if it is not as the exporter writes it.
  std::optional<Value> apply(const OnnxNode& node, const Operands& operands) const {
    if (operands.empty() || !operands[0] || node.attributes.size() > 1) return std::nullopt;
    if (node.type == "Cast") return operands.size() == 1 ? cast(node, *operands[0]) : std::nullopt;
    if (operands.size() != 3 || !operands[1] || !operands[2]) return std::nullopt;
    const Value &first = *operands[0], &scale = *operands[1], &zero = *operands[2];
    if (scale.rows || zero.rows || scale.type != OnnxTensor::kFloat || zero.type != type_ || scale.dims != zero.dims ||
        std::any_of(zero.raw.begin(), zero.raw.end(), [](std::byte byte) { return byte != std::byte{0}; })) {
      return std::nullopt;
    }
    return first.rows ? round_rows(node, first, scale, zero) : read_weights(node, first, scale);
  }

  /// The operands of another operator without their rounding; nothing if it may not read such ones.
  std::optional<std::vector<Value>> plain(const OnnxNode& node, const Operands& operands) {
    static const std::set<std::string_view> kProducts = {"Gemm", "MatMul", "Conv"};
    std::vector<const Value*> given;
    for (const auto* value : operands) {
      if (!value) continue;
      if (value->type != OnnxTensor::kFloat && value->type != OnnxTensor::kInt64) return std::nullopt;
      given.push_back(value);
    }
    if (kProducts.contains(node.type) && given.size() > 1) {
      const auto is_rounded = [](const Value* value) { return value->rounded; };
      if (given[0]->rounded != given[1]->rounded || std::any_of(given.begin() + 2, given.end(), is_rounded)) {
        return std::nullopt;
      }
      if (given[0]->rows && given[0]->rounded) found_.push_back({given[0]->scale, given[1]->dims, given[1]->content});
    } else {
      for (const auto* value : given) {
        if (value->rounded && (!value->rows || has_grid(*precision_))) return std::nullopt;
      }
    }
    std::vector<Value> values;
    for (const auto* value : operands) values.push_back(value ? without_rounding(*value) : Value{});
    return values;
  }

  /// Refuse other layers than the contract's.
  void compare(std::int64_t opset) const {
    if (!precision_) return;
    if (opset != precision_->opset) {
      throw ContractError("policy.onnx: its opset is " + std::to_string(opset) + "; the contract has " +
                          std::to_string(precision_->opset));
    }
    const auto layers = this->layers();
    if (static_cast<int>(layers.size()) != precision_->rounded()) {
      throw ContractError("policy.onnx: " + std::to_string(layers.size()) + " layers are in " + precision_->mode +
                          "; the contract has " + std::to_string(precision_->rounded()));
    }
    auto found = layers.begin();
    for (const auto& layer : precision_->layers) {
      if (layer.mode == "fp32") continue;
      const float right = single(layer.input_scale.value_or(0)), step = (found++)->scale;
      if (step == right) continue;
      char numbers[96];
      std::snprintf(numbers, sizeof numbers, " is %.9g; the contract has %.9g", static_cast<double>(step),
                    static_cast<double>(right));
      throw ContractError("policy.onnx: the input_scale of layer '" + layer.name + "'" + numbers);
    }
  }

 private:
  static float single(double value) {
    constexpr auto kMost = static_cast<double>(std::numeric_limits<float>::max());
    return value > kMost ? std::numeric_limits<float>::infinity() : static_cast<float>(value);
  }

  static Value without_rounding(const Value& value) {
    if (value.rows) return rows_of(value.rank);
    Value plain = value;
    plain.rounded = false;
    plain.raw = {};
    return plain;
  }

  std::optional<Value> cast(const OnnxNode& node, const Value& first) const {
    if (node.attributes.size() != 1 || node.attributes[0].name != "to") return std::nullopt;
    const auto to = static_cast<std::uint64_t>(node.attributes[0].integer);
    Value result = first;
    result.type = to;
    if (to == type_ && first.rows && first.type == OnnxTensor::kFloat) {
      result.rounded = false;
      return result;
    }
    if (to != OnnxTensor::kFloat || first.type != type_) return std::nullopt;
    result.rounded = true;
    return result;
  }

  std::optional<Value> read_weights(const OnnxNode& node, const Value& first, const Value& scale) const {
    std::int64_t axis = 1;
    for (const auto& attribute : node.attributes) {
      if (attribute.name != "axis") return std::nullopt;
      axis = attribute.integer;
    }
    if (node.type != "DequantizeLinear" || first.type != type_ || axis < 0 ||
        axis >= static_cast<std::int64_t>(first.dims.size()) ||
        scale.dims != std::vector{first.dims[static_cast<std::size_t>(axis)]}) {
      return std::nullopt;
    }
    Value result;
    result.dims = first.dims;
    result.rounded = true;
    result.content = first.content;
    return result;
  }

  /// A product with a rounded weight.
  struct Layer {
    float scale;
    std::vector<std::int64_t> dims;
    std::span<const std::byte> content;
    bool operator==(const Layer& other) const {
      return scale == other.scale && dims == other.dims && std::ranges::equal(content, other.content);
    }
  };

  /// The layers that were found. A network with left-right symmetry computes some twice, with the same weights and
  /// steps.
  std::vector<Layer> layers() const {
    if (static_cast<int>(found_.size()) == precision_->rounded()) return found_;
    std::vector<Layer> once;
    for (const auto& layer : found_) {
      if (std::find(once.begin(), once.end(), layer) == once.end()) once.push_back(layer);
    }
    return once;
  }

  std::optional<Value> round_rows(const OnnxNode& node, const Value& first, const Value& scale,
                                  const Value& zero) const {
    float step = 0;
    if (!node.attributes.empty() || !scale.dims.empty() || scale.raw.size() != sizeof step || zero.raw.size() != 1) {
      return std::nullopt;
    }
    std::memcpy(&step, scale.raw.data(), sizeof step);
    Value result = first;
    if (node.type == "QuantizeLinear") {
      if (first.type != OnnxTensor::kFloat || first.rounded) return std::nullopt;
      result.type = type_;
      result.scale = step;
      return result;
    }
    if (first.type != type_ || !(first.scale == step)) return std::nullopt;
    result.type = OnnxTensor::kFloat;
    result.rounded = true;
    return result;
  }

  const PrecisionSpec* precision_;
  std::uint64_t type_;
  std::vector<Layer> found_;
};

/// Result of an operator that does not round; nothing if it is not as the exporter writes it.
std::optional<Value> plain_result(const OnnxNode& node, const Operands& given, Rounding& rounding) {
  const bool is_unary = unary().contains(node.type);
  const auto values = rounding.plain(node, given);
  if (!values || given.empty() || !given[0]) return std::nullopt;
  Operands operands;
  for (std::size_t i = 0; i < given.size(); ++i) operands.push_back(given[i] ? &(*values)[i] : nullptr);
  if (is_unary) return operands.size() == 1 ? std::optional(*operands[0]) : std::nullopt;
  if (elementwise().contains(node.type)) return combine(operands);
  if (node.type == "Reshape") return reshape(operands);
  return keeps_rows(node, operands) ? std::optional(*operands[0]) : std::nullopt;
}

/// Result of an operator; nothing if it is not as the exporter writes it.
std::optional<Value> result_of(const OnnxNode& node, const Operands& operands, Rounding& rounding,
                               const PrecisionSpec* precision) {
  if (node.type == "Constant") {
    const bool right = operands.empty() && node.attributes.size() == 1 && node.attributes[0].name == "value" &&
                       node.attributes[0].tensor;
    return right ? std::optional(fixed(*node.attributes[0].tensor, precision)) : std::nullopt;
  }
  static const std::set<std::string_view> kOthers = {"Gemm",   "MatMul", "Conv",   "Reshape",
                                                     "Concat", "Slice",  "Gather", "Split"};
  if (rounding.has(node.type)) return rounding.apply(node, operands);
  if (!unary().contains(node.type) && !elementwise().contains(node.type) && !kOthers.contains(node.type)) {
    throw ContractError("policy.onnx: the operator " + node.type + " is not allowed; export the bundle again");
  }
  return plain_result(node, operands, rounding);
}

}  // namespace

void check_operators(const OnnxGraph& graph, const PrecisionSpec* precision) {
  Rounding rounding(precision);
  std::map<std::string, Value, std::less<>> values;
  for (const auto& tensor : graph.initializers) values[tensor.name] = fixed(tensor, precision);
  for (const auto& name : graph.inputs) values.try_emplace(name, rows_of(2));
  for (const auto& node : graph.nodes) {
    Operands operands;
    for (const auto& name : node.inputs) {
      const auto found = values.find(name);
      if (!name.empty() && found == values.end()) {
        throw ContractError("policy.onnx: " + node.type + " reads '" + name +
                            "', which nothing computes; export it again");
      }
      operands.push_back(name.empty() ? nullptr : &found->second);
    }
    const auto result = result_of(node, operands, rounding, precision);
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
  rounding.compare(graph.opset);
}

}  // namespace robot_rl

#include "onnx_check.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "json.h"

namespace robot_rl {
namespace {

using Bytes = std::span<const std::byte>;

/// One field of a protobuf message: a number, or bytes that are a text or a message in turn.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;
  Bytes bytes;
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

/// Walks over the fields of a message (wire types 0, 1, 2 and 5; ONNX has no others).
class Message {
 public:
  explicit Message(Bytes data) : data_(data) {}

  std::optional<Field> next() {
    if (at_ == data_.size()) return std::nullopt;
    const auto tag = varint();
    Field field;
    field.number = static_cast<std::uint32_t>(tag >> 3);
    if (field.number == 0 || tag >> 32) fail();
    switch (tag & 7) {
      case 0: field.value = varint(); break;
      case 1: field.bytes = take(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.bytes = take(4); break;
      default: fail();
    }
    return field;
  }

 private:
  [[noreturn]] static void fail() {
    throw ContractError("policy.onnx cannot be read (it is no ONNX file, or cut); export the bundle again");
  }

  Bytes take(std::uint64_t size) {
    if (size > data_.size() - at_) fail();
    at_ += static_cast<std::size_t>(size);
    return data_.subspan(at_ - static_cast<std::size_t>(size), static_cast<std::size_t>(size));
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(take(1)[0]);
      value |= (byte & 0x7f) << std::min(shift, 63);
      if (!(byte & 0x80)) return value;
    }
    fail();
  }

  Bytes data_;
  std::size_t at_ = 0;
};

// Numbers of the fields in onnx.proto.
namespace model_field {
constexpr std::uint32_t kOpset = 8, kGraph = 7, kMetadata = 14, kTraining = 20, kFunctions = 25;
}
namespace graph_field {
constexpr std::uint32_t kNode = 1, kInitializer = 5, kInput = 11, kOutput = 12, kSparse = 15;
}
namespace node_field {
constexpr std::uint32_t kName = 3, kAttribute = 5, kDomain = 7;
}
namespace attribute_field {
constexpr std::uint32_t kTensor = 5, kGraph = 6, kTensors = 10, kGraphs = 11, kSparse = 22, kSparses = 23;
}
namespace tensor_field {
constexpr std::uint32_t kName = 8, kExternal = 13, kLocation = 14;
}

/// An input or output: its type as far as a policy has one.
struct Port {
  std::string name;
  std::uint64_t type = 0;
  int dimensions = -1;
  std::int64_t width = -1;  // of the last dimension; -1 where it is free
};

struct Model {
  std::vector<Port> inputs, outputs;
  std::set<std::string> initializers;
  std::set<std::string> domains;
  std::string contract_hash;
  bool has_graph = false;
};

std::string read_tensor(Bytes data) {
  std::string name;
  bool external = false;
  for (Message message(data); const auto field = message.next();) {
    if (field->number == tensor_field::kName) name = field->text();
    if (field->number == tensor_field::kExternal || (field->number == tensor_field::kLocation && field->value))
      external = true;
  }
  if (external) throw ContractError("policy.onnx: '" + name + "' lies in another file; the weights must be inside");
  return name;
}

void read_attribute(Bytes data, const std::string& node) {
  for (Message message(data); const auto field = message.next();) {
    switch (field->number) {
      case attribute_field::kTensor:
      case attribute_field::kTensors: read_tensor(field->bytes); break;
      case attribute_field::kGraph:
      case attribute_field::kGraphs:
        throw ContractError("policy.onnx: '" + node + "' holds a graph; a policy is a plain chain of operators");
      case attribute_field::kSparse:
      case attribute_field::kSparses:
        throw ContractError("policy.onnx: '" + node + "' holds a sparse tensor; a policy has none");
      default: break;
    }
  }
}

void read_node(Bytes data, Model& model) {
  std::string name;
  for (Message message(data); const auto field = message.next();) {
    if (field->number == node_field::kName) name = field->text();
    if (field->number == node_field::kDomain) model.domains.emplace(field->text());
  }
  for (Message message(data); const auto field = message.next();) {
    if (field->number == node_field::kAttribute) read_attribute(field->bytes, name);
  }
}

void read_dimensions(Bytes shape, Port& port) {
  port.dimensions = 0;
  for (Message message(shape); const auto field = message.next();) {
    if (field->number != 1) continue;  // dim
    ++port.dimensions;
    port.width = -1;
    for (Message dimension(field->bytes); const auto part = dimension.next();) {
      if (part->number == 1) port.width = static_cast<std::int64_t>(part->value);  // dim_value
      if (part->number == 2) port.width = -1;                                      // dim_param
    }
  }
}

Port read_port(Bytes data) {
  Port port;
  for (Message message(data); const auto field = message.next();) {
    if (field->number == 1) port.name = field->text();
    if (field->number != 2) continue;  // type
    for (Message type(field->bytes); const auto kind = type.next();) {
      if (kind->number != 1) continue;  // tensor_type
      for (Message tensor(kind->bytes); const auto part = tensor.next();) {
        if (part->number == 1) port.type = part->value;  // elem_type
        if (part->number == 2) read_dimensions(part->bytes, port);
      }
    }
  }
  return port;
}

void read_graph(Bytes data, Model& model) {
  for (Message message(data); const auto field = message.next();) {
    switch (field->number) {
      case graph_field::kNode: read_node(field->bytes, model); break;
      case graph_field::kInitializer: model.initializers.insert(read_tensor(field->bytes)); break;
      case graph_field::kInput: model.inputs.push_back(read_port(field->bytes)); break;
      case graph_field::kOutput: model.outputs.push_back(read_port(field->bytes)); break;
      case graph_field::kSparse: throw ContractError("policy.onnx: a sparse initializer; plain tensors are allowed");
      default: break;
    }
  }
}

void read_metadata(Bytes data, Model& model) {
  std::string_view key, value;
  for (Message message(data); const auto field = message.next();) {
    if (field->number == 1) key = field->text();
    if (field->number == 2) value = field->text();
  }
  if (key == "contract_sha256") model.contract_hash = value;
}

void read_opset(Bytes data, Model& model) {
  for (Message message(data); const auto field = message.next();) {
    if (field->number == 1) model.domains.emplace(field->text());
  }
}

Model read_model(Bytes data) {
  Model model;
  for (Message message(data); const auto field = message.next();) {
    switch (field->number) {
      case model_field::kGraph:
        model.has_graph = true;
        read_graph(field->bytes, model);
        break;
      case model_field::kOpset: read_opset(field->bytes, model); break;
      case model_field::kMetadata: read_metadata(field->bytes, model); break;
      case model_field::kFunctions:
      case model_field::kTraining:
        throw ContractError("policy.onnx: functions or training of its own; plain ONNX operators are allowed");
      default: break;
    }
  }
  if (!model.has_graph)
    throw ContractError("policy.onnx cannot be read (it holds no network); export the bundle again");
  for (const auto& domain : model.domains) {
    if (domain.empty() || domain == "ai.onnx") continue;
    throw ContractError("policy.onnx: operators of ['" + domain + "']; plain ONNX operators are allowed");
  }
  return model;
}

using Widths = std::vector<std::pair<std::string, int>>;

void check_ports(const std::vector<Port>& ports, const Widths& wanted) {
  std::string found, right;
  for (const auto& port : ports) found += (found.empty() ? "" : ", ") + port.name;
  for (const auto& [name, width] : wanted) right += (right.empty() ? "" : ", ") + name;
  if (found != right) throw ContractError("policy.onnx: the names are " + found + "; a policy has " + right);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto& port = ports[i];
    if (port.type == 1 && port.dimensions == 2 && port.width == wanted[i].second) continue;
    throw ContractError("policy.onnx: '" + port.name + "' is of type " + std::to_string(port.type) + " with " +
                        std::to_string(port.dimensions) + " dimensions, " + std::to_string(port.width) +
                        " wide; the contract needs float (N, " + std::to_string(wanted[i].second) + ")");
  }
}

}  // namespace

void refuse_foreign_parts(Bytes model) { read_model(model); }

void check_model(Bytes data, const Contract& contract, const std::string& contract_hash) {
  Model model = read_model(data);
  if (model.contract_hash != contract_hash) {
    throw ContractError("policy.onnx was exported with the contract of hash " +
                        (model.contract_hash.empty() ? "None" : model.contract_hash) + "; contract.json has " +
                        contract_hash);
  }
  std::erase_if(model.inputs, [&](const Port& port) { return model.initializers.contains(port.name); });
  Widths inputs = {{"observation", contract.observation_size}};
  Widths outputs = {{"action", contract.action_size}, {"joint_target", contract.action_size}};
  if (contract.state_size) {
    inputs.emplace_back("state", contract.state_size);
    outputs.emplace_back("state_out", contract.state_size);
  }
  check_ports(model.inputs, inputs);
  check_ports(model.outputs, outputs);
}

}  // namespace robot_rl

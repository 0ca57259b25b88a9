#include "onnx_check.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "json.h"
#include "network.h"
#include "onnx_operators.h"
#include "protobuf.h"

namespace robot_rl {
namespace {

// Numbers of the fields in onnx.proto.
namespace model_field {
constexpr std::uint32_t kOpset = 8, kGraph = 7, kMetadata = 14, kTraining = 20, kFunctions = 25;
}
namespace graph_field {
constexpr std::uint32_t kNode = 1, kInitializer = 5, kInput = 11, kOutput = 12, kSparse = 15;
}
namespace node_field {
constexpr std::uint32_t kInput = 1, kOutput = 2, kName = 3, kType = 4, kAttribute = 5, kDomain = 7;
}
namespace attribute_field {
constexpr std::uint32_t kName = 1, kInteger = 3, kTensor = 5, kGraph = 6, kTensors = 10, kGraphs = 11, kSparse = 22,
                        kSparses = 23;
}
namespace tensor_field {
constexpr std::uint32_t kDims = 1, kType = 2, kIntegers = 7, kName = 8, kRaw = 9, kExternal = 13, kLocation = 14;
}

/// An input or output, with the parts of its type that a policy uses.
struct Port {
  std::string name;
  std::uint64_t type = 0;
  int dimensions = -1;
  std::int64_t width = -1;  // of the last dimension; -1 if it is free
  std::int64_t batch = -1;  // of the first
};

struct Model {
  std::vector<Port> inputs, outputs;
  OnnxGraph graph;
  std::set<std::string> domains;
  std::string contract_hash;
  bool has_graph = false;
};

/// Whole numbers of eight bytes each, little-endian.
std::vector<std::int64_t> raw_integers(Bytes raw) {
  std::vector<std::int64_t> integers(raw.size() / sizeof(std::int64_t));
  if (!integers.empty()) std::memcpy(integers.data(), raw.data(), integers.size() * sizeof(std::int64_t));
  return integers;
}

OnnxTensor read_tensor(Bytes data) {
  OnnxTensor tensor;
  bool external = false;
  std::optional<Bytes> raw;
  for (Message message(data); const auto field = message.next();) {
    switch (field->number) {
      case tensor_field::kDims: append_integers(*field, tensor.dims); break;
      case tensor_field::kType: tensor.type = field->value; break;
      case tensor_field::kIntegers: append_integers(*field, tensor.integers); break;
      case tensor_field::kName: tensor.name = field->text(); break;
      case tensor_field::kRaw: raw = field->bytes; break;
      case tensor_field::kExternal: external = true; break;
      case tensor_field::kLocation: external = external || field->value; break;
      default: break;
    }
  }
  if (external)
    throw ContractError("policy.onnx: '" + tensor.name + "' is in another file; the weights must be inside");
  if (raw) tensor.raw = *raw;
  if (tensor.type == OnnxTensor::kInt64 && raw) tensor.integers = raw_integers(*raw);
  return tensor;
}

OnnxAttribute read_attribute(Bytes data, const std::string& node) {
  OnnxAttribute attribute;
  for (Message message(data); const auto field = message.next();) {
    switch (field->number) {
      case attribute_field::kName: attribute.name = field->text(); break;
      case attribute_field::kInteger: attribute.integer = static_cast<std::int64_t>(field->value); break;
      case attribute_field::kTensor: attribute.tensor = read_tensor(field->bytes); break;
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
  return attribute;
}

void read_node(Bytes data, Model& model) {
  OnnxNode node;
  for (Message message(data); const auto field = message.next();) {
    switch (field->number) {
      case node_field::kInput: node.inputs.emplace_back(field->text()); break;
      case node_field::kOutput: node.outputs.emplace_back(field->text()); break;
      case node_field::kName: node.name = field->text(); break;
      case node_field::kType: node.type = field->text(); break;
      case node_field::kDomain: model.domains.emplace(field->text()); break;
      default: break;
    }
  }
  for (Message message(data); const auto field = message.next();) {
    if (field->number == node_field::kAttribute) node.attributes.push_back(read_attribute(field->bytes, node.name));
  }
  model.graph.nodes.push_back(std::move(node));
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
    if (port.dimensions == 1) port.batch = port.width;
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
      case graph_field::kInitializer: model.graph.initializers.push_back(read_tensor(field->bytes)); break;
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
  std::int64_t version = 0;
  for (Message message(data); const auto field = message.next();) {
    if (field->number == 1) model.domains.emplace(field->text());
    if (field->number == 2) version = static_cast<std::int64_t>(field->value);
  }
  model.graph.opset = std::max(model.graph.opset, version);  // there is one domain
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
        throw ContractError("policy.onnx: it defines functions or training; only plain ONNX operators are allowed");
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

bool is_initializer(const Model& model, const std::string& name) {
  const auto& all = model.graph.initializers;
  return std::any_of(all.begin(), all.end(), [&name](const OnnxTensor& tensor) { return tensor.name == name; });
}

/// Read a network without foreign parts and with only a policy's operators.
Model read_plain_model(Bytes data, const PrecisionSpec* precision) {
  Model model = read_model(data);
  for (const auto& port : model.inputs) model.graph.inputs.push_back(port.name);
  check_operators(model.graph, precision);
  return model;
}

void check_batch(const std::vector<Port>& ports) {
  for (const auto& port : ports) {
    if (port.batch < 0) continue;
    throw ContractError("policy.onnx: '" + port.name + "' has a batch of " + std::to_string(port.batch) +
                        "; it must be free, export the bundle again");
  }
}

void check_ports(const std::vector<Port>& ports, const std::vector<Node>& wanted) {
  const auto found = joined(ports, &Port::name), right = joined(wanted, &Node::name);
  if (found != right) throw ContractError("policy.onnx: the names are " + found + "; a policy has " + right);
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const auto& port = ports[i];
    if (port.type == 1 && port.dimensions == 2 && port.width == wanted[i].width) continue;
    throw ContractError("policy.onnx: '" + port.name + "' is of type " + std::to_string(port.type) + " with " +
                        std::to_string(port.dimensions) + " dimensions, " + std::to_string(port.width) +
                        " wide; the contract needs float (N, " + std::to_string(wanted[i].width) + ")");
  }
}

}  // namespace

void refuse_foreign_parts(Bytes model) { read_plain_model(model, nullptr); }

void check_model(Bytes data, const Contract& contract, const std::string& contract_hash) {
  Model model = read_plain_model(data, contract.precision ? &*contract.precision : nullptr);
  if (model.contract_hash != contract_hash) {
    throw ContractError("policy.onnx was exported with the contract of hash " +
                        (model.contract_hash.empty() ? "None" : model.contract_hash) + "; contract.json has " +
                        contract_hash);
  }
  std::erase_if(model.inputs, [&](const Port& port) { return is_initializer(model, port.name); });
  check_batch(model.inputs);
  check_batch(model.outputs);
  check_ports(model.inputs, network_inputs(contract));
  check_ports(model.outputs, network_outputs(contract));
}

}  // namespace robot_rl

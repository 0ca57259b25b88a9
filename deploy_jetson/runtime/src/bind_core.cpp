// The bundle's part of the Python module: contract, observations, reading and replaying a bundle.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "bundle.h"
#include "golden.h"
#include "json.h"
#include "observe.h"
#include "onnx_check.h"
#include "sha256.h"
#include "signature.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

/// One observer and its contract; takes signals by name in the contract's order of joints.
class PythonObserver {
 public:
  explicit PythonObserver(const Contract& contract) : contract_(contract), observer_(contract_) {}

  auto observe(const std::map<std::string, Floats>& signals) {
    Golden one;
    one.steps = 1;
    for (const auto& name : contract_.needed_signals()) {
      const auto found = signals.find(name);
      if (found == signals.end()) throw ContractError("the robot state has no signal '" + name + "'");
      const auto size = static_cast<std::size_t>(contract_.signal_size(name));
      if (found->second.size() != size) {
        throw ContractError("the robot state's '" + name + "' has " + std::to_string(found->second.size()) +
                            " values; the contract needs " + std::to_string(size));
      }
      one.signals[name].assign(found->second.data(), found->second.data() + size);
    }
    std::vector<float> command(contract_.command.size()),
        observation(static_cast<std::size_t>(contract_.observation_size));
    golden_state(one, contract_, 0, state_, command);
    observer_.observe(state_, command, observation);
    return to_array(observation);
  }
  void reset() { observer_.reset(); }
  void set_last_action(const Floats& action) {
    if (action.size() != contract_.actions.size())
      throw ContractError("last_action does not have the size of the contract's actions");
    observer_.set_last_action({action.data(), action.size()});
  }

 private:
  Contract contract_;
  Observer observer_;
  LowState state_;
};

std::vector<std::string> names_of(const std::vector<JointSpec>& joints) {
  std::vector<std::string> names;
  for (const auto& joint : joints) names.push_back(joint.name);
  return names;
}

/// The precision as in contract.json; None for a network in fp32.
nb::object precision_of(const Contract& contract) {
  if (!contract.precision) return nb::none();
  nb::list layers;
  for (const auto& layer : contract.precision->layers) {
    auto row = dict_of("name", layer.name, "mode", layer.mode);
    if (layer.input_scale) row["input_scale"] = *layer.input_scale;
    layers.append(row);
  }
  return dict_of("mode", contract.precision->mode, "opset", contract.precision->opset, "layers", layers,
                 "action_bound", contract.precision->action_bound);
}

void bind_contract(nb::module_& module) {
  nb::class_<JointSpec>(module, "JointSpec", "One joint of a contract.")
      .def_ro("name", &JointSpec::name)
      .def_ro("default_pos", &JointSpec::default_pos)
      .def_ro("kp", &JointSpec::kp)
      .def_ro("kd", &JointSpec::kd)
      .def_ro("effort_limit", &JointSpec::effort_limit)
      .def_prop_ro("velocity_limit", [](const JointSpec& joint) { return joint.velocity_limit.value_or(INFINITY); })
      .def_prop_ro("lower", [](const JointSpec& joint) { return joint.lower.value_or(-INFINITY); })
      .def_prop_ro("upper", [](const JointSpec& joint) { return joint.upper.value_or(INFINITY); });
  nb::class_<ActionSpec>(module, "ActionSpec", "One policy output of a contract.")
      .def_ro("joint", &ActionSpec::joint)
      .def_ro("joint_index", &ActionSpec::joint_index)
      .def_prop_ro("kind", [](const ActionSpec& action) { return kActionKinds[static_cast<int>(action.kind)]; })
      .def_ro("scale", &ActionSpec::scale)
      .def_ro("offset", &ActionSpec::offset)
      .def_prop_ro("clip", [](const ActionSpec& action) { return action.clip.value_or(INFINITY); })
      .def_prop_ro("max_error", [](const ActionSpec& action) { return action.max_error.value_or(INFINITY); });
  nb::class_<Contract>(module, "Contract", "A policy contract, as it was read; see read_contract.")
      .def_ro("robot", &Contract::robot)
      .def_ro("joints", &Contract::joints)
      .def_ro("actions", &Contract::actions)
      .def_ro("observation_size", &Contract::observation_size)
      .def_ro("action_size", &Contract::action_size)
      .def_ro("state_size", &Contract::state_size)
      .def_ro("measured_size", &Contract::measured_size)
      .def_ro("received_size", &Contract::received_size)
      .def_ro("team", &Contract::team)
      .def_ro("control_period_s", &Contract::control_period_s)
      .def_ro("physics_timestep_s", &Contract::physics_timestep_s)
      .def_ro("fallback_pose", &Contract::fallback_pose)
      .def_prop_ro("mode", &Contract::mode)
      .def_prop_ro("precision", &precision_of)
      .def_prop_ro("joint_names", [](const Contract& contract) { return names_of(contract.joints); })
      .def_prop_ro("command_names",
                   [](const Contract& contract) {
                     std::vector<std::string> names;
                     for (const auto& command : contract.command) names.push_back(command.name);
                     return names;
                   })
      .def("signal_size", [](const Contract& contract, const std::string& name) { return contract.signal_size(name); })
      .def("needed_signals", &Contract::needed_signals)
      .def("resolve_joints", [](const Contract& contract, const std::vector<std::string>& names) {
        return resolve_joints(contract, names);
      });
  module.def(
      "read_contract",
      [](const nb::bytes& text) { return read_contract({static_cast<const char*>(text.data()), text.size()}); },
      nb::arg("text"), "Read a contract from the bytes of contract.json. Raises ContractError.");
}

void bind_bundle(nb::module_& module) {
  nb::class_<ReplayReport>(module, "ReplayReport", "What a golden replay measured; see robot_rl_deploy.replay.")
      .def_ro("steps", &ReplayReport::steps)
      .def_ro("resets", &ReplayReport::resets)
      .def_ro("observation_error", &ReplayReport::observation_error)
      .def_ro("action_error", &ReplayReport::action_error)
      .def_ro("joint_target_error", &ReplayReport::joint_target_error);
  nb::class_<Bundle>(module, "Bundle", "A policy bundle that was read and checked; see read_bundle.")
      .def_ro("path", &Bundle::path)
      .def_ro("identity", &Bundle::identity)
      .def_ro("contract", &Bundle::contract)
      .def_prop_ro("model", [](const Bundle& bundle) { return nb::bytes(bundle.model.data(), bundle.model.size()); })
      .def_prop_ro("golden_steps", [](const Bundle& bundle) { return bundle.golden.steps; });
  module.def(
      "read_bundle",
      [](const std::filesystem::path& path, const std::optional<std::filesystem::path>& signed_by) {
        return read_bundle(path, signed_by.value_or("")).release();
      },
      nb::arg("path"), nb::arg("signed_by") = nb::none(), nb::rv_policy::take_ownership,
      "Read and check a bundle, without the golden replay. Raises ContractError, UserError.");
  module.def(
      "check_model",
      [](const nb::bytes& model, const Contract& contract, const std::string& contract_hash) {
        check_model(from_bytes(model), contract, contract_hash);
      },
      nb::arg("model"), nb::arg("contract"), nb::arg("contract_hash"),
      "Refuse a network that does not fit. Raises ContractError.");
  module.def(
      "refuse_foreign_parts", [](const nb::bytes& model) { refuse_foreign_parts(from_bytes(model)); }, nb::arg("model"),
      "Refuse a network that reaches beyond its file. Raises ContractError.");
  module.def(
      "sha256", [](const nb::bytes& data) { return sha256(from_bytes(data)); }, nb::arg("data"),
      "SHA-256 in hexadecimal.");
  module.def(
      "is_signed_by",
      [](const nb::bytes& data, const nb::bytes& signature, const std::filesystem::path& key) {
        return is_signed_by(from_bytes(data), from_bytes(signature), key);
      },
      nb::arg("data"), nb::arg("signature"), nb::arg("key"),
      "Whether an Ed25519 signature is valid. Raises UserError.");
  module.def(
      "is_printable",
      [](const nb::bytes& text) { return is_printable({static_cast<const char*>(text.data()), text.size()}); },
      nb::arg("text"), "Whether a text of a contract may contain these UTF-8 bytes.");
}

void bind_core(nb::module_& module) {
  nb::exception<ContractError>(module, "ContractError", PyExc_ValueError);
  nb::exception<UserError>(module, "UserError", PyExc_ValueError);
  bind_contract(module);
  bind_bundle(module);
  nb::class_<PythonObserver>(module, "Observer", "Builds one robot's observations; see robot_rl_deploy.observe.")
      .def(nb::init<const Contract&>(), nb::arg("contract"))
      .def("reset", &PythonObserver::reset)
      .def("observe", &PythonObserver::observe, nb::arg("signals"))
      .def("set_last_action", &PythonObserver::set_last_action, nb::arg("action"));
}

const AddBinder kAdd(bind_core);

}  // namespace
}  // namespace robot_rl

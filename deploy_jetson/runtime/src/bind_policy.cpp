// A bundle's policy in Python, step by step as the binary's loop runs it.
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings.h"
#include "bundle.h"
#include "policy.h"
#include "settings.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

/// A policy with the bundle and the backend that it refers to.
struct OpenPolicy {
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Policy> policy;
  std::string why;
};

std::unique_ptr<OpenPolicy> open_policy(const std::filesystem::path& path, const std::string& backend,
                                        const Settings* settings) {
  auto open = std::make_unique<OpenPolicy>();
  BackendOptions options;
  options.name = backend;
  open->bundle = read_bundle(path);
  open->backend = make_backend(*open->bundle, options, open->why);
  open->policy = std::make_unique<Policy>(open->bundle->contract, *open->backend,
                                          settings ? Exploration::of(*settings) : Exploration{});
  return open;
}

PolicyOutput step(OpenPolicy& open, const LowState& state, const std::vector<float>& command, bool reset) {
  if (command.size() != open.bundle->contract.command.size()) {
    throw UserError("command: " + std::to_string(command.size()) + " components; the contract has " +
                    std::to_string(open.bundle->contract.command.size()));
  }
  PolicyOutput out;
  open.policy->step(state, command, reset, out);
  return out;
}

void bind_policy(nb::module_& module) {
  nb::class_<OpenPolicy>(module, "Policy", "A bundle's policy: observation and inference of one control step.")
      .def("step", &step, nb::arg("state"), nb::arg("command"), nb::arg("reset") = false,
           "Observe and infer; `reset`: reset the policy before. The result is a PolicyOutput.")
      .def_prop_ro(
          "contract", [](const OpenPolicy& open) -> const Contract& { return open.bundle->contract; },
          nb::rv_policy::reference_internal)
      .def_prop_ro("observation",
                   [](const OpenPolicy& open) {
                     const auto seen = open.policy->observation();
                     return std::vector<float>(seen.begin(), seen.end());
                   },
                   "Of the last step.")
      .def_ro("why", &OpenPolicy::why, "Which backend was chosen, and why.");
  module.def(
      "open_policy", &open_policy, nb::arg("bundle"), nb::arg("backend") = "onnxruntime",
      nb::arg("settings") = nb::none(),
      "Read a bundle, replay its golden sequence and return its policy; `settings`: explore_std and explore_seed. "
      "Raises ContractError, UserError.");
}

const AddBinder kAdd(bind_policy);

}  // namespace
}  // namespace robot_rl

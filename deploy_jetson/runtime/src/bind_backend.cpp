// Python: Network, load_network, open_network, has_tensorrt.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <vector>

#include "bindings.h"
#include "bundle.h"
#include "paced.h"

namespace robot_rl {

namespace {

namespace nb = nanobind;
using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// A backend together with the contract and the bundle that it refers to.
struct Network {
  Contract contract;
  std::unique_ptr<Bundle> bundle;
  std::unique_ptr<Backend> backend;
  std::string why;
};

BackendOptions make_options(const std::string& name, const std::string& precision, const std::string& library,
                            const std::string& cache) {
  BackendOptions options;
  options.name = name;
  options.precision = precision;
  options.library = library;
  options.cache = cache;
  return options;
}

std::unique_ptr<Network> load_network(const std::string& contract, nb::bytes model, const std::string& name,
                                      const std::string& precision, const std::string& library,
                                      const std::string& cache) {
  auto network = std::make_unique<Network>();
  network->contract = read_contract(contract);
  const auto bytes = from_bytes(model);
  const auto options = make_options(name, precision, library, cache);
  network->backend = name == "tensorrt" ? make_tensorrt(network->contract, bytes, options)
                                        : make_onnxruntime(network->contract, bytes, options);
  return network;
}

std::unique_ptr<Network> open_network(const std::string& path, const std::string& name, const std::string& precision,
                                      const std::string& library, const std::string& cache) {
  auto network = std::make_unique<Network>();
  network->bundle = read_bundle(path);
  network->backend = make_backend(*network->bundle, make_options(name, precision, library, cache), network->why);
  return network;
}

nb::object run(Network& network, const Row& observation, const Row& state) {
  const auto& contract = network.backend->contract();
  std::vector<float> action(contract.action_size), target(contract.action_size), after(contract.state_size);
  const std::span<const float> seen(observation.data(), observation.size()), before(state.data(), state.size());
  if (!network.backend->run(seen, before, action, target, after)) {
    return nb::none();
  }
  return nb::make_tuple(to_array(action), to_array(target), to_array(after));
}

/// Actions (N, action_size) of observations (N, observation_size), one after the other; a state goes from row to row.
nb::object actions(Network& network, const Rows& observations) {
  const auto& contract = network.backend->contract();
  const auto width = observations.shape(1), count = static_cast<std::size_t>(contract.action_size);
  std::vector<float> all(observations.shape(0) * count);
  std::vector<float> target(count), memory(static_cast<std::size_t>(contract.state_size));
  for (std::size_t row = 0; row < observations.shape(0); ++row) {
    const std::span<const float> seen(observations.data() + row * width, width);
    if (!network.backend->run(seen, memory, std::span(all).subspan(row * count, count), target, memory)) {
      throw UserError("observations of " + std::to_string(width) + " values: the network needs " +
                      std::to_string(contract.observation_size) + ", or it cannot be run");
    }
  }
  return nb::cast(to_array(std::span<const float>(all), {observations.shape(0), count}));
}

/// Run with the same memory for state and next state, as a policy's loop may do.
nb::object run_in_place(Network& network, const Row& observation, const Row& state) {
  const auto& contract = network.backend->contract();
  std::vector<float> action(contract.action_size), target(contract.action_size);
  std::vector<float> memory(state.data(), state.data() + state.size());
  const std::span<const float> seen(observation.data(), observation.size());
  if (!network.backend->run(seen, memory, action, target, memory)) return nb::none();
  return nb::make_tuple(to_array(action), to_array(target), to_array(memory));
}

nb::dict measure(Network& network, const Row& observation, int runs, double period_s, bool rehearse) {
  Pace pace;
  pace.rehearse = rehearse;
  pace.runs = runs;
  pace.period_s = period_s;
  PacedLatency latency;
  {
    const nb::gil_scoped_release unlocked;
    latency = measure_paced(*network.backend, {observation.data(), observation.size()}, pace);
  }
  return dict_of("runs", latency.runs, "failed", latency.failed, "p50_us", latency.p50_us, "p99_us", latency.p99_us,
                 "p99.9_us", latency.p999_us, "max_us", latency.max_us, "rehearsal_us", latency.rehearsal_p50_us);
}

void bind_backend(nb::module_& module) {
  nb::class_<Network>(module, "Network", "A policy's network in a backend; a recurrent policy's state goes in and out.")
      .def("run", &run, nb::arg("observation"), nb::arg("state"),
           "Infer: action, joint target and next state, or None if the backend failed.")
      .def("run_in_place", &run_in_place, nb::arg("observation"), nb::arg("state"),
           "The same with the next state written over the one given.")
      .def("actions", &actions, nb::arg("observations"),
           "Actions (N, action_size) of observations (N, observation_size), float32, row by row; the state of a policy "
           "with a memory goes from row to row, from zero. Raises UserError.")
      .def(
          "rehearse", [](Network& network) { network.backend->rehearse(); }, "Warm it for the next run.")
      .def(
          "warm", [](Network& network, int runs) { network.backend->warm(runs); }, nb::arg("runs") = 200)
      .def("measure", &measure, nb::arg("observation"), nb::arg("runs") = 1000, nb::arg("period_s") = 0.002,
           nb::arg("rehearse") = true,
           "Latencies at a fixed rate [us]; `observation` may be several rows one after the other.")
      .def_prop_ro("identity", [](const Network& network) { return network.backend->identity(); })
      .def_ro("why", &Network::why, "Which backend was chosen, and why.");
  module.def("load_network", &load_network, nb::arg("contract"), nb::arg("model"), nb::arg("name") = "onnxruntime",
             nb::arg("precision") = "fp32", nb::arg("library") = "", nb::arg("cache") = "",
             "Load a network without its golden sequence: text of contract.json, bytes of policy.onnx.");
  module.def("open_network", &open_network, nb::arg("bundle"), nb::arg("name") = "auto", nb::arg("precision") = "fp32",
             nb::arg("library") = "", nb::arg("cache") = "", "Load a bundle's network and replay its golden sequence.");
  module.def("has_tensorrt", &has_tensorrt, "Whether this module was built with TensorRT.");
}

const AddBinder kAdd(bind_backend);

}  // namespace

}  // namespace robot_rl

// Python: a small loop without threads and clocks that writes a log; and the replay of a log. For tests and tools.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings.h"
#include "bundle.h"
#include "commander.h"
#include "logger.h"
#include "policy.h"
#include "records.h"
#include "replay.h"
#include "rt.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

/// Replaces a backend in a recording without a network: action = a fixed mixture of the observation, in [-1, 1].
class MixBackend final : public Backend {
 public:
  explicit MixBackend(const Contract& contract) : Backend(contract) {}
  bool run(std::span<const float> observation, std::span<const float>, std::span<float> action,
           std::span<float> joint_target, std::span<float>) noexcept override {
    for (std::size_t k = 0; k < action.size(); ++k) {
      const float value = observation[k % observation.size()] * 0.125f;
      action[k] = value > 1 ? 1 : value < -1 ? -1 : value;
      const auto& spec = contract().actions[k];
      joint_target[k] = static_cast<float>(spec.offset + spec.scale * static_cast<double>(action[k]));
      if (spec.commanded >= 0) joint_target[k] += observation[static_cast<std::size_t>(spec.commanded)];
    }
    return true;
  }
  std::string identity() const override { return "mixture"; }
};

/// Makes the loop's calls at given times and logs each; odd and even events go to two rings, as from two
/// threads.
class Recorder {
 public:
  Recorder(const Bundle& bundle, const Settings& settings, const std::filesystem::path& path,
           const std::string& backend, std::size_t ring_bytes)
      : contract_(bundle.contract), even_(ring_bytes), odd_(ring_bytes), commander_(contract_, settings, 7) {
    LogInfo info;
    info.bundle = &bundle;
    info.settings = settings;
    info.commander = 7;
    info.transport = "none";
    info.robot.robot = contract_.robot;
    for (const auto& joint : contract_.joints) info.robot.joints.push_back(joint.name);
    if (backend == "mixture") {
      backend_ = std::make_unique<MixBackend>(contract_);
    } else {
      backend_ = make_onnxruntime(contract_, bundle.model, {});
    }
    info.backend = backend_->identity();
    policy_ = std::make_unique<Policy>(contract_, *backend_, Exploration::of(settings));
    logger_ = std::make_unique<Logger>(path, info, std::vector<EventRing*>{&even_, &odd_});
  }
  void start() { logger_->start(); }
  void stop() { logger_->stop(); }
  void ready(std::int64_t now) {
    commander_.ready(now);
    count(push_call(ring(), order_, now, EventKind::kReady));
  }
  void on_state(const LowState& state, std::int64_t now) {
    state_ = state;
    commander_.on_state(state, now);
    count(push_state(ring(), order_, now, state));
  }
  void on_operator(const OperatorInput& input, std::int64_t now) {
    commander_.on_operator(input, now);
    count(push_operator(ring(), order_, now, input));
  }
  void step(std::int64_t now) {
    PolicyOutput out;
    const std::vector<float> command(commander_.operator_command().begin(), commander_.operator_command().end());
    policy_->step(state_, command, epoch_ != commander_.policy_epoch(), out);
    epoch_ = commander_.policy_epoch();
    commander_.on_policy(out, now);
    count(push_policy(ring(), order_, now, out, command, policy_->observation()));
  }
  void on_fault(const Finding& finding, std::int64_t now) {
    commander_.on_fault(finding, now);
    count(push_fault(ring(), order_, now, finding));
  }
  void on_missed_deadline(std::int64_t now) {
    commander_.on_missed_deadline(now);
    count(push_call(ring(), order_, now, EventKind::kMissedDeadline));
  }
  LowCommand command(std::int64_t now, bool from_policy) {
    LowCommand out;
    commander_.command(now, from_policy, out);
    count(push_command(ring(), order_, now, out));
    return out;
  }
  /// Leave an event out of the log, as a full ring does.
  void lose() { ++order_; }
  Phase phase() const { return commander_.phase(); }
  const Logger& logger() const { return *logger_; }

 private:
  EventRing& ring() { return order_ % 2 ? odd_ : even_; }
  void count(bool) { ++order_; }

  Contract contract_;
  EventRing even_, odd_;
  Commander commander_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<Logger> logger_;
  LowState state_;
  std::uint64_t order_ = 0;
  std::uint32_t epoch_ = 0;
};

/// Measure the cost of logging in the real-time threads: for each of `ticks` the time [ns] to push its events, in a
/// thread that pauses between ticks as the loop does, while a logger writes. Every tick has a state and a command,
/// every tenth a policy's step and its command in addition.
std::vector<std::int64_t> time_logging(const Bundle& bundle, const std::filesystem::path& path, int ticks,
                                       std::int64_t pause_ns) {
  LogInfo info;
  info.bundle = &bundle;
  EventRing ring(kRingBytes);
  Logger logger(path, info, {&ring});
  logger.start();
  LowState state;
  LowCommand command;
  PolicyOutput output;
  state.joints = command.joints = static_cast<int>(bundle.contract.joints.size());
  output.actions = bundle.contract.action_size;
  state.feet = kMaxFeet;
  state.measured_count = bundle.contract.measured_size;
  const std::vector<float> observation(static_cast<std::size_t>(bundle.contract.observation_size)), requested(3);
  std::vector<std::int64_t> cost(static_cast<std::size_t>(ticks));
  std::uint64_t order = 0;
  for (int k = 0; k < ticks; ++k) {
    sleep_until(now_ns() + pause_ns);
    const auto begin = now_ns();
    push_state(ring, order++, begin, state);
    if (k % 10 == 0) {
      push_policy(ring, order++, begin, output, requested, observation);
      push_command(ring, order++, begin, command);
    }
    push_command(ring, order++, begin, command);
    cost[static_cast<std::size_t>(k)] = now_ns() - begin;
  }
  logger.stop();
  if (logger.counters().lost > 0) throw UserError("the logger lost events");
  return cost;
}

nb::dict replayed(const std::filesystem::path& path, const std::string& backend) {
  BackendOptions options;
  options.name = backend;
  const auto result = replay_log(path, options);
  return dict_of("events", result.events, "commands", result.commands, "steps", result.steps, "states", result.states,
                 "cut", result.cut, "same_backend", result.same_backend, "action_difference", result.action_difference,
                 "backend", result.backend, "recorded_backend", result.recorded_backend, "difference",
                 result.difference);
}

void bind_recorder(nb::module_& module) {
  nb::class_<Recorder>(module, "Recorder", "A small loop: makes its calls at given times and logs them.")
      .def(nb::init<const Bundle&, const Settings&, const std::filesystem::path&, const std::string&, std::size_t>(),
           nb::arg("bundle"), nb::arg("settings"), nb::arg("path"), nb::arg("backend") = "mixture",
           nb::arg("ring_bytes") = kRingBytes, nb::keep_alive<1, 2>())
      .def("start", &Recorder::start)
      .def("stop", &Recorder::stop, nb::call_guard<nb::gil_scoped_release>())
      .def("ready", &Recorder::ready, nb::arg("now_ns"))
      .def("on_state", &Recorder::on_state, nb::arg("state"), nb::arg("now_ns"))
      .def("on_operator", &Recorder::on_operator, nb::arg("input"), nb::arg("now_ns"))
      .def("on_fault", &Recorder::on_fault, nb::arg("finding"), nb::arg("now_ns"))
      .def("on_missed_deadline", &Recorder::on_missed_deadline, nb::arg("now_ns"))
      .def("step", &Recorder::step, nb::arg("now_ns"), "A control step on the newest state.")
      .def("command", &Recorder::command, nb::arg("now_ns"), nb::arg("from_policy") = false)
      .def("lose", &Recorder::lose, "Leave one event out of the log, as a full ring does.")
      .def_prop_ro("phase", &Recorder::phase)
      .def_prop_ro("path", [](const Recorder& recorder) { return recorder.logger().path(); })
      .def_prop_ro("why", [](const Recorder& recorder) { return recorder.logger().why(); })
      .def_prop_ro("counters", [](const Recorder& recorder) {
        const auto counters = recorder.logger().counters();
        return dict_of("events", counters.events, "lost", counters.lost, "bytes", counters.bytes, "failed",
                       counters.failed);
      });
  module.def("time_logging", &time_logging, nb::arg("bundle"), nb::arg("path"), nb::arg("ticks"), nb::arg("pause_ns"),
             nb::call_guard<nb::gil_scoped_release>(), "Time to push the events of each tick [ns].");
  module.def("replay_log", &replayed, nb::arg("path"), nb::arg("backend") = "auto",
             "Replay a log and compare every command bit for bit; replay.h describes the result.");
}

const AddBinder kAdd(bind_recorder);

}  // namespace
}  // namespace robot_rl

// Safety, commander and policy step in Python: what the binary runs, call by call, for tests and simulation.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "bindings.h"
#include "commander.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

using Floats = std::vector<float>;

void bind_limits(nb::module_& module) {
  nb::class_<SafetyLimits>(module, "SafetyLimits", "Limits that decide when something is wrong; settings.h has units.")
      .def(nb::init<>())
      .def_rw("state_age_s", &SafetyLimits::state_age_s)
      .def_rw("state_frozen_s", &SafetyLimits::state_frozen_s)
      .def_rw("sensor_frozen_s", &SafetyLimits::sensor_frozen_s)
      .def_rw("imu_disagree_rad", &SafetyLimits::imu_disagree_rad)
      .def_rw("missed_deadlines", &SafetyLimits::missed_deadlines)
      .def_rw("tilt_rad", &SafetyLimits::tilt_rad)
      .def_rw("position_margin", &SafetyLimits::position_margin)
      .def_rw("velocity_factor", &SafetyLimits::velocity_factor)
      .def_rw("action_rate", &SafetyLimits::action_rate)
      .def_rw("effort_factor", &SafetyLimits::effort_factor)
      .def_rw("temperature_c", &SafetyLimits::temperature_c)
      .def_rw("operator_s", &SafetyLimits::operator_s);
  nb::class_<Settings>(module, "Settings", "Settings of the runtime in addition to the bundle; settings.h has units.")
      .def(nb::init<>())
      .def_rw("writer_period_s", &Settings::writer_period_s)
      .def_rw("stand_s", &Settings::stand_s)
      .def_rw("blend_s", &Settings::blend_s)
      .def_rw("stop_s", &Settings::stop_s)
      .def_rw("lost_stand_s", &Settings::lost_stand_s)
      .def_rw("damping_scale", &Settings::damping_scale)
      .def_rw("explore_std", &Settings::explore_std)
      .def_rw("explore_seed", &Settings::explore_seed)
      .def_rw("limits", &Settings::limits)
      .def_prop_rw(
          "steps_per_state",
          [](const Settings& settings) { return nb::int_(settings.steps_per_state.value_or(0)); },
          [](Settings& settings, int steps) {
            settings.steps_per_state = steps > 0 ? std::optional<int>(steps) : std::nullopt;
          },
          "The policy runs at every nth state; 0: by the clock.");
}

void bind_finding(nb::module_& module) {
  nb::class_<Finding>(module, "Finding", "A fault, the joint (-1: none) and value against limit.")
      .def(nb::init<>())
      .def("__init__",
           [](Finding* made, Fault fault, int joint, double value, double limit) {
             new (made) Finding{fault, joint, value, limit};
           },
           nb::arg("fault"), nb::arg("joint") = -1, nb::arg("value") = 0.0, nb::arg("limit") = 0.0)
      .def_ro("fault", &Finding::fault)
      .def_ro("joint", &Finding::joint)
      .def_ro("value", &Finding::value)
      .def_ro("limit", &Finding::limit)
      .def("__bool__", [](const Finding& finding) { return static_cast<bool>(finding); });
  module.def("describe", &describe, nb::arg("finding"), nb::arg("contract"), "One line for the log.");
  nb::class_<Safety>(module, "Safety", "The safety layer: pure functions of state, action and time.")
      .def(nb::init<const Contract&, const SafetyLimits&>(), nb::arg("contract"), nb::arg("limits"),
           nb::keep_alive<1, 2>())
      .def("check_state", &Safety::check_state, nb::arg("state"))
      .def("check_age", &Safety::check_age, nb::arg("newest"), nb::arg("now_ns"), nb::arg("last_change_ns"))
      .def(
          "check_action",
          [](const Safety& safety, const Floats& action, const Floats& previous) {
            return safety.check_action(action, previous);
          },
          nb::arg("action"), nb::arg("previous"))
      .def("limit_effort", &Safety::limit_effort, nb::arg("state"), nb::arg("command"));
}

Floats first(const float (&values)[kMaxJoints], int count) {
  return Floats(values, values + std::clamp(count, 0, kMaxJoints));
}

/// Copy values into an array of a PolicyOutput.
void put(float (&to)[kMaxJoints], const Floats& values) {
  if (values.size() > kMaxJoints) throw nb::value_error("more values than there are joints");
  std::copy(values.begin(), values.end(), to);
}

void bind_output(nb::module_& module) {
  nb::class_<PolicyOutput>(module, "PolicyOutput", "What a control step gave.")
      .def(nb::init<>())
      .def_rw("step", &PolicyOutput::step)
      .def_rw("state_sequence", &PolicyOutput::state_sequence)
      .def_rw("state_robot_time_ns", &PolicyOutput::state_robot_time_ns)
      .def_rw("state_receive_time_ns", &PolicyOutput::state_receive_time_ns)
      .def_rw("begin_ns", &PolicyOutput::begin_ns)
      .def_rw("observed_ns", &PolicyOutput::observed_ns)
      .def_rw("done_ns", &PolicyOutput::done_ns)
      .def_rw("reset", &PolicyOutput::reset)
      .def_rw("ok", &PolicyOutput::ok)
      .def_rw("actions", &PolicyOutput::actions)
      .def_prop_rw(
          "action",
          [](const PolicyOutput& out) { return first(out.action, out.actions); },
          [](PolicyOutput& out, const Floats& values) { put(out.action, values); }, "The first `actions` of them.")
      .def_prop_rw(
          "target",
          [](const PolicyOutput& out) { return first(out.target, out.actions); },
          [](PolicyOutput& out, const Floats& values) { put(out.target, values); }, "The first `actions` of them.");
}

void bind_commander(nb::module_& module) {
  nb::class_<Commander>(module, "Commander", "The state machine, which builds every command.")
      .def(nb::init<const Contract&, const Settings&, std::uint64_t>(), nb::arg("contract"), nb::arg("settings"),
           nb::arg("commander"), nb::keep_alive<1, 2>())
      .def("on_state", &Commander::on_state, nb::arg("state"), nb::arg("now_ns"))
      .def("on_operator", &Commander::on_operator, nb::arg("input"), nb::arg("now_ns"))
      .def("on_policy", &Commander::on_policy, nb::arg("output"), nb::arg("now_ns"))
      .def("on_missed_deadline", &Commander::on_missed_deadline, nb::arg("now_ns"))
      .def("on_fault", &Commander::on_fault, nb::arg("finding"), nb::arg("now_ns"))
      .def("ready", &Commander::ready, nb::arg("now_ns"))
      .def(
          "command",
          [](Commander& commander, std::int64_t now_ns, bool from_policy) {
            LowCommand out;
            commander.command(now_ns, from_policy, out);
            return out;
          },
          nb::arg("now_ns"), nb::arg("from_policy") = false, "Check the ages and build the command to send now.")
      .def_prop_ro("phase", &Commander::phase)
      .def_prop_ro("fault", &Commander::fault)
      .def_prop_ro("finding", [](const Commander& commander) { return Finding(commander.finding()); })
      .def_prop_ro("fault_time_ns", &Commander::fault_time_ns)
      .def_prop_ro("policy_epoch", &Commander::policy_epoch)
      .def_prop_ro("operator_command", [](const Commander& commander) {
        const auto command = commander.operator_command();
        return Floats(command.begin(), command.end());
      });
  module.def(
      "command_bytes",
      [](const LowCommand& command) { return nb::bytes(reinterpret_cast<const char*>(&command), sizeof command); },
      nb::arg("command"), "The bytes of the command in memory, to compare bit for bit.");
}

void bind_control(nb::module_& module) {
  bind_limits(module);
  bind_finding(module);
  bind_output(module);
  bind_commander(module);
}

const AddBinder kAdd(bind_control);

}  // namespace
}  // namespace robot_rl

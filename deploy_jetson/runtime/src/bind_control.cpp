// Settings, safety, commander and policy step in Python: what the binary runs, call by call, for tests and simulation.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "bindings.h"
#include "commander.h"
#include "fields.h"
#include "histogram.h"
#include "rehearsal.h"
#include "settings_table.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

using Floats = std::vector<float>;

void bind_settings(nb::module_& module) {
  nb::class_<SafetyLimits> limits(module, "SafetyLimits", "Limits that decide when something is wrong; settings.h.");
  nb::class_<Settings> settings(module, "Settings", "Settings of the runtime in addition to the bundle; settings.h.");
  limits.def(nb::init<>());
  settings.def(nb::init<>()).def_rw("limits", &Settings::limits);
  for (const SettingRow& row : setting_table()) {
    const char* name = row.name.data() + (row.name.find('.') + 1);  // none is found at npos, and npos + 1 is 0
    const auto define = [&](auto member) {
      if constexpr (requires(Settings all) { all.*member; }) settings.def_rw(name, member);
      if constexpr (requires(SafetyLimits all) { all.*member; }) limits.def_rw(name, member);
    };
    if (row.name != "steps_per_state") std::visit(define, row.member);
  }
  settings.def_prop_rw(
      "steps_per_state", [](const Settings& settings) { return settings.steps_per_state.value_or(0); },
      [](Settings& settings, int steps) {
        settings.steps_per_state = steps > 0 ? std::optional<int>(steps) : std::nullopt;
      },
      "The policy runs at every nth state; 0: by the clock.");
  module.def(
      "settings_json",
      [](const std::string& text) {
        Settings settings;
        if (!text.empty()) read_settings_text(settings, text, "settings");
        return settings_json(settings);
      },
      nb::arg("text") = "", "All settings as JSON, updated from a JSON text; UserError if one is invalid.");
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

/// The first `actions` values of a list of a policy's output, as a copy.
template <float (PolicyOutput::*member)[kMaxJoints]>
void add_list(nb::class_<PolicyOutput>& type, const char* name) {
  type.def_prop_rw(
      name,
      [](const PolicyOutput& out) {
        return Floats(out.*member, out.*member + std::clamp(out.actions, 0, kMaxJoints));
      },
      [](PolicyOutput& out, const Floats& values) {
        if (values.size() > kMaxJoints) throw nb::value_error("more values than there are joints");
        std::copy(values.begin(), values.end(), out.*member);
      },
      "The first `actions` of them.");
}

void bind_output(nb::module_& module) {
  nb::class_<PolicyOutput> type(module, "PolicyOutput", "What a control step gave.");
  const Properties<PolicyOutput> properties(type);
  type.def(nb::init<>()).def_rw("actions", &PolicyOutput::actions);
  add_list<&PolicyOutput::action>(type, "action");
  add_list<&PolicyOutput::target>(type, "target");
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

void bind_measures(nb::module_& module) {
  nb::class_<Histogram>(module, "Histogram", "A histogram of durations; buckets grow with the duration.")
      .def(nb::init<>())
      .def("add", &Histogram::add, nb::arg("ns"), "Add one duration [ns].")
      .def_prop_ro("count", &Histogram::count)
      .def("quantile_ns", &Histogram::quantile_ns, nb::arg("share"), "The duration below which this share of them is.")
      .def("json", &Histogram::json, "All of it as JSON, in us.");
  nb::class_<Rehearsal>(module, "Rehearsal", "When the network runs an additional time before a state; times in ns.")
      .def(nb::init<>())
      .def("on_state", &Rehearsal::on_state, nb::arg("received_ns"))
      .def("on_done", &Rehearsal::on_done, nb::arg("took_ns"))
      .def_prop_ro("expected_ns", &Rehearsal::expected_ns)
      .def_prop_ro("begin_ns", &Rehearsal::begin_ns, "0: unknown, or there is not enough time.");
}

void bind_control(nb::module_& module) {
  bind_settings(module);
  bind_measures(module);
  bind_finding(module);
  bind_output(module);
  bind_commander(module);
}

const AddBinder kAdd(bind_control);

}  // namespace
}  // namespace robot_rl

// States, commands and the operator's messages in Python.
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "fields.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

void bind_enums(nb::module_& module) {
  nb::enum_<Phase>(module, "Phase", "Phase of the state machine.")
      .value("BOOT", Phase::kBoot)
      .value("DAMPING", Phase::kDamping)
      .value("STAND", Phase::kStand)
      .value("POLICY", Phase::kPolicy);
  nb::enum_<Request>(module, "Request", "What the operator asks for.")
      .value("NONE", Request::kNone)
      .value("DAMP", Request::kDamp)
      .value("STAND", Request::kStand)
      .value("POLICY", Request::kPolicy);
  nb::enum_<Fault> fault(module, "Fault", "Why the state machine went to DAMPING.");
  for (int value = 0; value < static_cast<int>(Fault::kCount); ++value) {
    std::string name = name_of(static_cast<Fault>(value));
    for (auto& sign : name) sign = sign >= 'a' && sign <= 'z' ? static_cast<char>(sign - 'a' + 'A') : sign;
    fault.value(name.c_str(), static_cast<Fault>(value));
  }
  module.def("name_of", [](Phase phase) { return name_of(phase); });
  module.def("name_of", [](Fault value) { return name_of(value); });
}

/// A class with the fields of fields.h and a copy function; the counts of its lists are added by the caller.
template <class C>
nb::class_<C> bind_message(nb::module_& module, const char* name, const char* doc) {
  nb::class_<C> type(module, name, doc);
  type.def(nb::init<>()).def("copy", [](const C& object) { return C(object); }, "A copy with its own memory.");
  const Properties<C> properties(type);
  return type;
}

void bind_types(nb::module_& module) {
  module.attr("MAX_JOINTS") = kMaxJoints;
  module.attr("MAX_FEET") = kMaxFeet;
  module.attr("MAX_MEASURED") = kMaxMeasured;
  module.attr("MAX_COMMAND") = kMaxCommand;
  bind_enums(module);
  bind_message<LowState>(module, "LowState", "One state of the robot; types.h has units and frames.")
      .def_rw("joints", &LowState::joints)
      .def_rw("feet", &LowState::feet)
      .def_rw("measured_count", &LowState::measured_count);
  bind_message<LowCommand>(module, "LowCommand", "One command to the motors; types.h has units.")
      .def_rw("joints", &LowCommand::joints);
  bind_message<OperatorInput>(module, "OperatorInput", "One message of the operator.")
      .def_rw("size", &OperatorInput::size);
}

const AddBinder kAdd(bind_types, true);

}  // namespace
}  // namespace robot_rl

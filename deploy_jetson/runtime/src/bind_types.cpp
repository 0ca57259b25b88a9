// States, commands and the operator's messages in Python. Arrays are NumPy views of the whole capacity (64 joints);
// setting one writes its first values and leaves the rest.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "bindings.h"
#include "types.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

template <class T>
const char* dtype_name() {
  return std::is_same_v<T, float> ? "float32" : "uint32";
}

/// A property for an array member.
template <class C, class T, std::size_t N>
void add_array(nb::class_<C>& type, const char* name, T (C::*member)[N]) {
  type.def_prop_rw(
      name, [member](C& object) { return nb::ndarray<nb::numpy, T, nb::ndim<1>>(object.*member, {N}); },
      [member, name](C& object, nb::handle value) {
        using Array = nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
        const auto made = nb::module_::import_("numpy").attr("ascontiguousarray")(value, dtype_name<T>());
        const auto array = nb::cast<Array>(made);
        if (array.shape(0) > N) {
          throw nb::value_error((std::string(name) + ": " + std::to_string(array.shape(0)) +
                                 " values; the most are " + std::to_string(N))
                                    .c_str());
        }
        std::memcpy(object.*member, array.data(), array.shape(0) * sizeof(T));
      });
}

template <class C>
void add_copy(nb::class_<C>& type) {
  type.def("copy", [](const C& object) { return C(object); }, "A copy with its own memory.");
}

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

void bind_state(nb::module_& module) {
  nb::class_<LowState> state(module, "LowState", "One state of the robot; types.h has units and frames.");
  state.def(nb::init<>())
      .def_rw("sequence", &LowState::sequence)
      .def_rw("robot_time_ns", &LowState::robot_time_ns)
      .def_rw("receive_time_ns", &LowState::receive_time_ns)
      .def_rw("commander", &LowState::commander)
      .def_rw("joints", &LowState::joints)
      .def_rw("feet", &LowState::feet)
      .def_rw("heights", &LowState::heights)
      .def_rw("measured_count", &LowState::measured_count);
  add_array(state, "quat_wxyz", &LowState::quat_wxyz);
  add_array(state, "gyro", &LowState::gyro);
  add_array(state, "acc", &LowState::acc);
  add_array(state, "joint_pos", &LowState::joint_pos);
  add_array(state, "joint_vel", &LowState::joint_vel);
  add_array(state, "joint_effort", &LowState::joint_effort);
  add_array(state, "temperature_c", &LowState::temperature_c);
  add_array(state, "motor_fault", &LowState::motor_fault);
  add_array(state, "foot_contact", &LowState::foot_contact);
  add_array(state, "foot_force", &LowState::foot_force);
  add_array(state, "height_scan", &LowState::height_scan);
  add_array(state, "measured", &LowState::measured);
  add_copy(state);
}

void bind_command(nb::module_& module) {
  nb::class_<LowCommand> command(module, "LowCommand", "One command to the motors; types.h has units.");
  command.def(nb::init<>())
      .def_rw("sequence", &LowCommand::sequence)
      .def_rw("commander", &LowCommand::commander)
      .def_rw("state_sequence", &LowCommand::state_sequence)
      .def_rw("state_robot_time_ns", &LowCommand::state_robot_time_ns)
      .def_rw("state_age_ns", &LowCommand::state_age_ns)
      .def_rw("send_time_ns", &LowCommand::send_time_ns)
      .def_rw("joints", &LowCommand::joints)
      .def_rw("phase", &LowCommand::phase)
      .def_rw("fault", &LowCommand::fault)
      .def_rw("from_policy", &LowCommand::from_policy);
  add_array(command, "q", &LowCommand::q);
  add_array(command, "dq", &LowCommand::dq);
  add_array(command, "kp", &LowCommand::kp);
  add_array(command, "kd", &LowCommand::kd);
  add_array(command, "tau", &LowCommand::tau);
  add_copy(command);
}

void bind_operator(nb::module_& module) {
  nb::class_<OperatorInput> input(module, "OperatorInput", "One message of the operator.");
  input.def(nb::init<>())
      .def_rw("sequence", &OperatorInput::sequence)
      .def_rw("receive_time_ns", &OperatorInput::receive_time_ns)
      .def_rw("request", &OperatorInput::request)
      .def_rw("size", &OperatorInput::size);
  add_array(input, "command", &OperatorInput::command);
  add_copy(input);
}

void bind_types(nb::module_& module) {
  module.attr("MAX_JOINTS") = kMaxJoints;
  module.attr("MAX_FEET") = kMaxFeet;
  module.attr("MAX_HEIGHTS") = kMaxHeights;
  module.attr("MAX_MEASURED") = kMaxMeasured;
  module.attr("MAX_COMMAND") = kMaxCommand;
  bind_enums(module);
  bind_state(module);
  bind_command(module);
  bind_operator(module);
}

const AddBinder kAdd(bind_types, true);

}  // namespace
}  // namespace robot_rl

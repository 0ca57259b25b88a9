// Python: Rehearsal.
#include "bindings.h"
#include "rehearsal.h"

namespace robot_rl {

namespace {

namespace nb = nanobind;

void bind_rehearsal(nb::module_& module) {
  nb::class_<Rehearsal>(module, "Rehearsal", "When the network runs an additional time before a state; times in ns.")
      .def(nb::init<>())
      .def("on_state", &Rehearsal::on_state, nb::arg("received_ns"))
      .def("on_done", &Rehearsal::on_done, nb::arg("took_ns"))
      .def_prop_ro("expected_ns", &Rehearsal::expected_ns)
      .def_prop_ro("begin_ns", &Rehearsal::begin_ns, "0: unknown, or there is not enough time.");
}

const AddBinder kAdd(bind_rehearsal);

}  // namespace

}  // namespace robot_rl

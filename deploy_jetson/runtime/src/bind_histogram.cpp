// Python: Histogram.
#include "bindings.h"
#include "histogram.h"

#include <nanobind/stl/string.h>

namespace robot_rl {

namespace {

namespace nb = nanobind;

void bind_histogram(nb::module_& module) {
  nb::class_<Histogram>(module, "Histogram", "A histogram of durations; buckets grow with the duration.")
      .def(nb::init<>())
      .def("add", &Histogram::add, nb::arg("ns"), "Add one duration [ns].")
      .def_prop_ro("count", &Histogram::count)
      .def("quantile_ns", &Histogram::quantile_ns, nb::arg("share"), "The duration below which this share of them is.")
      .def("json", &Histogram::json, "All of it as JSON, in us.");
}

const AddBinder kAdd(bind_histogram);

}  // namespace

}  // namespace robot_rl

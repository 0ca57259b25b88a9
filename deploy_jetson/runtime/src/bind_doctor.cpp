// The doctor's parts in Python: its checks of files below another root, and its text.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bindings.h"
#include "doctor.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

nb::list rows(const std::vector<Check>& checks) {
  nb::list list;
  for (const auto& check : checks) {
    nb::dict row;
    row["name"] = check.name;
    row["verdict"] = name_of(check.verdict);
    row["found"] = check.found;
    row["remedy"] = check.remedy;
    list.append(row);
  }
  return list;
}

void bind(nb::module_& module) {
  module.def(
      "doctor_files",
      [](const std::filesystem::path& root, int cpu_writer, int cpu_policy) {
        Options options;
        options.cpu_writer = cpu_writer;
        options.cpu_policy = cpu_policy;
        return rows(check_files(options, root));
      },
      nb::arg("root"), nb::arg("cpu_writer") = -1, nb::arg("cpu_policy") = -1,
      "Check a machine by the files below `root`: a list of {name, verdict, found, remedy}.");
  module.def(
      "doctor_live",
      [](double seconds) {
        std::vector<Check> checks;
        {
          const nb::gil_scoped_release released;
          checks = check_live(Options{}, seconds);
        }
        return rows(checks);
      },
      nb::arg("seconds"), "Check this machine by experiment, and measure for `seconds` how late it wakes up.");
  module.def(
      "parse_cpus", [](const std::string& text) { return format_cpus(parse_cpus(text)); }, nb::arg("text"),
      "Read a set of processors in the kernel's notation and write it again.");
}

const AddBinder kAdd(bind);

}  // namespace
}  // namespace robot_rl

// Python: the settings by name, so that Python and the tests read and write the same as the binary.
#include "bindings.h"
#include "error.h"
#include "settings.h"

#include <nanobind/stl/string.h>

namespace robot_rl {

namespace {

namespace nb = nanobind;

void bind_options(nb::module_& module) {
  module.def(
      "settings_json",
      [](const std::string& text) {
        Settings settings;
        if (!text.empty()) read_settings_text(settings, text, "settings");
        return settings_json(settings);
      },
      nb::arg("text") = "", "All settings as JSON, updated from a JSON text; UserError if one is invalid.");
}

const AddBinder kAdd(bind_options);

}  // namespace

}  // namespace robot_rl

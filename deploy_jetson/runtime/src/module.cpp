// The Python module: every bind_*.cpp adds its part.
#include "bindings.h"

NB_MODULE(_core, module) {
  module.doc() = "The robot binary's C++ core.";
  for (const auto bind : robot_rl::binders()) bind(module);
}

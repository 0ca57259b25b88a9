// The Python module's parts: each bind_*.cpp registers one function that adds its names.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace robot_rl {

using Binder = void (*)(nanobind::module_&);

inline std::vector<Binder>& binders() {
  static std::vector<Binder> all;
  return all;
}

/// At namespace scope of a bind_*.cpp: `const AddBinder kAdd(bind_something);`. `first`: before all others,
/// because their default arguments have these types.
struct AddBinder {
  explicit AddBinder(Binder binder, bool first = false) {
    binders().insert(first ? binders().begin() : binders().end(), binder);
  }
};

}  // namespace robot_rl

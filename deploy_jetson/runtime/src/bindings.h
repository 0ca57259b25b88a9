// The Python module's parts: each bind_*.cpp registers one function that adds its names.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
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

inline std::span<const std::byte> from_bytes(const nanobind::bytes& data) {
  return {static_cast<const std::byte*>(data.data()), data.size()};
}

inline nanobind::bytes to_bytes(std::span<const std::byte> data) { return nanobind::bytes(data.data(), data.size()); }

/// A NumPy array with a copy of these values.
template <class T, std::size_t N = 1>
auto to_array(std::span<const T> values, const std::size_t (&shape)[N]) {
  T* copy = new T[values.size()];
  std::copy(values.begin(), values.end(), copy);
  const nanobind::capsule owner(copy, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
  return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<N>>(copy, N, shape, owner);
}
template <class T>
auto to_array(const std::vector<T>& values) {
  return to_array(std::span<const T>(values), {values.size()});
}

/// A dict of names and values, in turn.
inline void add_items(nanobind::dict&) {}
template <class T, class... More>
void add_items(nanobind::dict& dict, const char* name, const T& value, const More&... more) {
  dict[name] = value;
  add_items(dict, more...);
}
template <class... Items>
nanobind::dict dict_of(const Items&... items) {
  nanobind::dict dict;
  add_items(dict, items...);
  return dict;
}

/// An archive of fields.h that defines a property for each field. An array is a NumPy view of its whole capacity;
/// setting one writes its first values and leaves the rest.
template <class C>
class Properties {
 public:
  explicit Properties(nanobind::class_<C>& type) : type_(type) { fields(*this, sample_); }
  template <class T>
  void number(const char* name, T& value) {
    const auto at = offset(&value);
    type_.def_prop_rw(
        name, [at](const C& object) { return *place<const T>(object, at); },
        [at](C& object, T value) { *place<T>(object, at) = value; });
  }
  template <class T, std::size_t N>
  void fixed(const char* name, T (&values)[N]) {
    const auto at = offset(values);
    type_.def_prop_rw(
        name,
        [at](C& object) { return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(place<T>(object, at), {N}); },
        [at, name](C& object, nanobind::handle value) {
          using Array = nanobind::ndarray<nanobind::numpy, const T, nanobind::ndim<1>, nanobind::c_contig>;
          const char* type = std::is_same_v<T, float> ? "float32" : "uint32";
          const auto numpy = nanobind::module_::import_("numpy");
          const auto array = nanobind::cast<Array>(numpy.attr("ascontiguousarray")(value, type));
          if (array.shape(0) > N) {
            const auto counts = std::to_string(array.shape(0)) + " values; the most are " + std::to_string(N);
            throw nanobind::value_error((std::string(name) + ": " + counts).c_str());
          }
          std::memcpy(place<T>(object, at), array.data(), array.shape(0) * sizeof(T));
        });
  }
  template <class T, std::size_t N>
  void list(const char* name, T (&values)[N], std::int32_t&) {
    fixed(name, values);
  }

 private:
  template <class T, class Object>
  static T* place(Object& object, std::ptrdiff_t at) {
    using Byte = std::conditional_t<std::is_const_v<Object>, const char, char>;
    return reinterpret_cast<T*>(reinterpret_cast<Byte*>(&object) + at);
  }
  std::ptrdiff_t offset(const void* member) const {
    return static_cast<const char*>(member) - reinterpret_cast<const char*>(&sample_);
  }

  nanobind::class_<C>& type_;
  C sample_;
};

}  // namespace robot_rl

// Messages of a log as ROS 2 encodes them (CDR, little-endian), and their definitions in ROS's format (ros2msg). A
// message is one list of fields, `fields(archive, value)`; the archives below write its definition, write it, and read
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "types.h"

namespace robot_rl {

/// ROS's name of a number's type.
template <class T>
constexpr std::string_view ros_name() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, float>) return "float32";
  if constexpr (std::is_same_v<T, double>) return "float64";
  if constexpr (std::is_same_v<T, std::uint8_t>) return "uint8";
  if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "uint32";
  if constexpr (std::is_same_v<T, std::int64_t>) return "int64";
  if constexpr (std::is_same_v<T, std::uint64_t>) return "uint64";
}

/// The number behind an enumeration, else the type itself.
template <class T, bool = std::is_enum_v<T>>
struct Plain {
  using type = T;
};
template <class T>
struct Plain<T, true> {
  using type = std::underlying_type_t<T>;
};

/// Writes the definition.
class CdrDefinition {
 public:
  template <class T>
  void number(const char* name, T&) {
    using Number = typename Plain<T>::type;
    line(ros_name<Number>(), kOne, name);
  }
  template <class T, std::size_t N>
  void fixed(const char* name, T (&)[N]) {
    line(ros_name<T>(), N, name);
  }
  template <class T, std::size_t N>
  void list(const char* name, T (&)[N], std::int32_t&) {
    line(ros_name<T>(), kAny, name);
  }
  void list(const char* name, std::vector<float>&) { line("float32", kAny, name); }
  void former(const char* name, auto&, auto&) { line("float32", kAny, name); }
  void text(const char* name, std::string&) { line("string", kOne, name); }
  const std::string& definition() const { return text_; }

 private:
  static constexpr std::size_t kOne = 0, kAny = ~std::size_t{0};
  void line(std::string_view type, std::size_t size, const char* name) {
    text_ += type;
    if (size != kOne) text_ += '[';
    if (size != kOne && size != kAny) text_ += std::to_string(size);
    if (size != kOne) text_ += ']';
    text_ += ' ';
    text_ += name;
    text_ += '\n';
  }
  std::string text_;
};

/// Writes a message; `list` writes the first `count` elements.
class CdrWriter {
 public:
  CdrWriter() { clear(); }
  void clear() { bytes_.assign({std::byte{0}, std::byte{1}, std::byte{0}, std::byte{0}}); }
  template <class T>
  void number(const char*, T& value) {
    put(&value, sizeof(T), sizeof(T), 1);
  }
  template <class T, std::size_t N>
  void fixed(const char*, T (&values)[N]) {
    put(values, sizeof(T), sizeof(T), N);
  }
  template <class T, std::size_t N>
  void list(const char* name, T (&values)[N], std::int32_t& count) {
    number(name, count);
    put(values, sizeof(T), sizeof(T), static_cast<std::size_t>(count));
  }
  void former(const char* name, auto&, auto&) {
    std::uint32_t count = 0;
    number(name, count);
  }
  void list(const char* name, std::vector<float>& values) {
    auto count = static_cast<std::uint32_t>(values.size());
    number(name, count);
    put(values.data(), sizeof(float), sizeof(float), values.size());
  }
  void text(const char* name, std::string& value) {
    auto size = static_cast<std::uint32_t>(value.size() + 1);
    number(name, size);
    put(value.c_str(), 1, 1, size);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kHead = 4;
  void put(const void* from, std::size_t align, std::size_t size, std::size_t count) {
    if (count == 0) return;
    while ((bytes_.size() - kHead) % align != 0) bytes_.push_back(std::byte{0});
    const auto at = bytes_.size();
    bytes_.resize(at + size * count);
    std::memcpy(bytes_.data() + at, from, size * count);
  }
  std::vector<std::byte> bytes_;
};

/// Reads a message; `good()` is false if the bytes are not such a message. Numbers of 64 bits with a sign are times. A
/// second `list` of the same count must be as long as the first.
class CdrReader {
 public:
  explicit CdrReader(std::span<const std::byte> bytes) : bytes_(bytes) {
    good_ = bytes.size() >= kHead && bytes[0] == std::byte{0} && bytes[1] == std::byte{1};
  }
  template <class T>
  void number(const char*, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      get(&byte, 1, 1, 1);
      good_ = good_ && byte <= 1;
      value = byte == 1;
    } else {
      get(&value, sizeof(T), sizeof(T), 1);
      if constexpr (std::is_same_v<T, std::int64_t>) good_ = good_ && is_time(value);
    }
  }
  template <class T, std::size_t N>
  void fixed(const char*, T (&values)[N]) {
    get(values, sizeof(T), sizeof(T), N);
  }
  template <class T, std::size_t N>
  void list(const char* name, T (&values)[N], std::int32_t& count) {
    std::uint32_t found = 0;
    number(name, found);
    good_ = good_ && found <= N && (count < 0 || static_cast<std::uint32_t>(count) == found);
    if (!good_) return;
    count = static_cast<std::int32_t>(found);
    get(values, sizeof(T), sizeof(T), found);
  }
  /// A list that is empty in what is written now; of an earlier version it is the values of another list.
  template <class T, std::size_t N>
  void former(const char* name, T (&values)[N], std::int32_t& count) {
    std::uint32_t found = 0;
    number(name, found);
    good_ = good_ && found <= N;
    if (!good_ || found == 0) return;
    count = static_cast<std::int32_t>(found);
    get(values, sizeof(T), sizeof(T), found);
  }
  void list(const char* name, std::vector<float>& values) {
    std::uint32_t found = 0;
    number(name, found);
    good_ = good_ && found * sizeof(float) <= bytes_.size();
    if (!good_) return;
    values.resize(found);
    get(values.data(), sizeof(float), sizeof(float), found);
  }
  void text(const char* name, std::string& value) {
    std::uint32_t size = 0;
    number(name, size);
    good_ = good_ && size >= 1 && size <= bytes_.size();
    if (!good_) return;
    value.resize(size);
    get(value.data(), 1, 1, size);
    good_ = good_ && value.back() == '\0';
    value.resize(size - 1);
  }
  bool good() const { return good_; }

 private:
  static constexpr std::size_t kHead = 4;
  void get(void* to, std::size_t align, std::size_t size, std::size_t count) {
    if (!good_ || count == 0) return;
    const auto at = kHead + (at_ + align - 1) / align * align;
    good_ = at + size * count <= bytes_.size();
    if (!good_) return;
    std::memcpy(to, bytes_.data() + at, size * count);
    at_ = at - kHead + size * count;
  }
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool good_ = false;
};

}  // namespace robot_rl

// The wire format of protobuf as far as ONNX needs it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "error.h"

namespace robot_rl {

using Bytes = std::span<const std::byte>;

/// One field of a protobuf message: a number, or bytes that are a text or a message in turn.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;
  Bytes bytes;
  bool packed = false;  // bytes of a length of their own
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

/// Walks over the fields of a message (wire types 0, 1, 2 and 5; ONNX has no others).
class Message {
 public:
  explicit Message(Bytes data) : data_(data) {}

  std::optional<Field> next() {
    if (at_ == data_.size()) return std::nullopt;
    const auto tag = varint();
    Field field;
    field.number = static_cast<std::uint32_t>(tag >> 3);
    if (field.number == 0 || tag >> 32) fail();
    switch (tag & 7) {
      case 0: field.value = varint(); break;
      case 1: field.bytes = take(8); break;
      case 2:
        field.bytes = take(varint());
        field.packed = true;
        break;
      case 5: field.bytes = take(4); break;
      default: fail();
    }
    return field;
  }

  /// The next number of a packed list.
  std::optional<std::uint64_t> number() {
    if (at_ == data_.size()) return std::nullopt;
    return varint();
  }

 private:
  [[noreturn]] static void fail() {
    throw ContractError(
        "policy.onnx cannot be read (it is not an ONNX file, or it is truncated); export the bundle again");
  }

  Bytes take(std::uint64_t size) {
    if (size > data_.size() - at_) fail();
    at_ += static_cast<std::size_t>(size);
    return data_.subspan(at_ - static_cast<std::size_t>(size), static_cast<std::size_t>(size));
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(take(1)[0]);
      value |= (byte & 0x7f) << std::min(shift, 63);
      if (!(byte & 0x80)) return value;
    }
    fail();
  }

  Bytes data_;
  std::size_t at_ = 0;
};

/// Add the whole numbers of a field that is repeated: one by one, or packed.
inline void append_integers(const Field& field, std::vector<std::int64_t>& numbers) {
  if (!field.packed) {
    numbers.push_back(static_cast<std::int64_t>(field.value));
    return;
  }
  for (Message message(field.bytes); const auto number = message.number();) {
    numbers.push_back(static_cast<std::int64_t>(*number));
  }
}

}  // namespace robot_rl

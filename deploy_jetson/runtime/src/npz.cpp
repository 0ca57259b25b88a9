#include "npz.h"

#include <cctype>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "crc32.h"

namespace robot_rl {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kEnd = 0x06054b50, kEntry = 0x02014b50, kLocal = 0x04034b50;
constexpr std::size_t kEndSize = 22, kEntrySize = 46, kLocalSize = 30;

[[noreturn]] void damaged(const std::string& what, const std::string& why) {
  throw ContractError(what + " cannot be read (" + why + "); export the bundle again");
}

/// Little-endian numbers at checked offsets.
class Reader {
 public:
  Reader(Bytes data, const std::string& what) : data_(data), what_(what) {}

  Bytes part(std::size_t at, std::size_t size) const {
    if (at > data_.size() || size > data_.size() - at) damaged(what_, "it is truncated");
    return data_.subspan(at, size);
  }
  std::uint32_t number(std::size_t at, std::size_t size) const {
    std::uint32_t value = 0;
    const auto bytes = part(at, size);
    for (std::size_t i = size; i-- > 0;) value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
    return value;
  }
  std::string_view text(std::size_t at, std::size_t size) const {
    return {reinterpret_cast<const char*>(part(at, size).data()), size};
  }
  std::size_t size() const { return data_.size(); }

 private:
  Bytes data_;
  const std::string& what_;
};

/// Reads the header of an .npy file: {'descr': '<f4', 'fortran_order': False, 'shape': (256, 3), }.
class Header {
 public:
  Header(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  NpyArray read() {
    NpyArray array;
    bool fortran = true;
    int keys = 0;
    need("{");
    while (!take("}")) {
      const auto key = quoted();
      need(":");
      if (key == "descr") {
        array.type = quoted();
      } else if (key == "fortran_order") {
        fortran = !take("False");
        if (fortran) need("True");
      } else if (key == "shape") {
        array.shape = shape();
      } else {
        damaged(what_, "an array's header names '" + std::string(key) + "'");
      }
      ++keys;
      if (!take(",")) {
        need("}");
        break;
      }
    }
    skip_space();
    if (keys != 3 || at_ != text_.size()) damaged(what_, "an array's header is wrong");
    if (fortran && array.shape.size() > 1) damaged(what_, "an array is in Fortran order");
    return array;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void need(std::string_view word) {
    if (!take(word)) damaged(what_, "an array's header lacks " + std::string(word));
  }
  std::string quoted() {
    need("'");
    const auto end = text_.find('\'', at_);
    if (end == std::string_view::npos) damaged(what_, "an array's header does not end");
    const auto begin = at_;
    at_ = end + 1;
    return std::string(text_.substr(begin, end - begin));
  }
  std::vector<long long> shape() {
    std::vector<long long> sizes;
    need("(");
    while (!take(")")) {
      skip_space();
      long long size = 0;
      const auto begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && size < 1LL << 40; ++at_) {
        size = size * 10 + (text_[at_] - '0');
      }
      if (at_ == begin) damaged(what_, "an array's shape is wrong");
      sizes.push_back(size);
      if (!take(",")) {
        need(")");
        break;
      }
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& what_;
  std::size_t at_ = 0;
};

/// Bytes of one value of a type such as "<f4"; 0 for a type that is not a plain number.
std::size_t item_size(const std::string& type) {
  if (type.size() != 3 || std::string_view("<|").find(type[0]) == std::string_view::npos) return 0;
  if (std::string_view("biuf").find(type[1]) == std::string_view::npos ||
      !std::isdigit(static_cast<unsigned char>(type[2])))
    return 0;
  return static_cast<std::size_t>(type[2] - '0');
}

NpyArray read_npy(Bytes data, const std::string& name, const std::string& what) {
  const Reader reader(data, what);
  if (reader.text(0, 6) != "\x93NUMPY") damaged(what, "'" + name + "' is not an array");
  if (reader.number(6, 2) != 1) damaged(what, "'" + name + "' is of a version of .npy that is not 1.0");
  const std::size_t begin = 10, size = reader.number(8, 2);
  NpyArray array = Header(reader.text(begin, size), what).read();
  array.data = data.subspan(begin + size);
  const std::size_t item = item_size(array.type);
  if (item == 0) damaged(what, "'" + name + "' is of type " + array.type);
  std::size_t bytes = item;
  for (const auto length : array.shape) {
    if (length != 0 && bytes > data.size() / static_cast<std::size_t>(length))
      damaged(what, "'" + name + "' is truncated");
    bytes *= static_cast<std::size_t>(length);
  }
  if (bytes != array.data.size()) damaged(what, "'" + name + "' does not have the size in its header");
  return array;
}

}  // namespace

std::string NpyArray::shown() const {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"<f4", "float32"}, {"<f8", "float64"}, {"|b1", "bool"}, {"<i8", "int64"}, {"<i4", "int32"}, {"<f2", "float16"}};
  std::string text = type;
  for (const auto& [code, name] : kNames) {
    if (type == code) text = name;
  }
  text += " (";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::map<std::string, NpyArray> read_npz(Bytes file, const std::string& what) {
  const Reader reader(file, what);
  if (file.size() < kEndSize || reader.number(file.size() - kEndSize, 4) != kEnd)
    damaged(what, "it is not a ZIP file, or it is truncated");
  const auto end = file.size() - kEndSize;
  const auto count = reader.number(end + 10, 2);
  std::size_t at = reader.number(end + 16, 4);
  if (reader.number(end + 12, 4) + at != end) damaged(what, "its list of parts is wrong");
  std::map<std::string, NpyArray> arrays;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (reader.number(at, 4) != kEntry) damaged(what, "its list of parts is wrong");
    const auto crc = reader.number(at + 16, 4), packed = reader.number(at + 20, 4), size = reader.number(at + 24, 4);
    const auto name_size = reader.number(at + 28, 2), local = reader.number(at + 42, 4);
    std::string name(reader.text(at + kEntrySize, name_size));
    if (reader.number(at + 10, 2) != 0 || packed != size) damaged(what, "'" + name + "' is compressed");
    if (reader.number(at + 8, 2) & 1) damaged(what, "'" + name + "' is encrypted");
    if (reader.number(local, 4) != kLocal) damaged(what, "its list of parts is wrong");
    const auto data =
        reader.part(local + kLocalSize + reader.number(local + 26, 2) + reader.number(local + 28, 2), size);
    if (crc32(data) != crc) damaged(what, "'" + name + "' does not have its CRC-32");
    if (!name.ends_with(".npy")) damaged(what, "'" + name + "' is not an array");
    name.resize(name.size() - 4);
    if (!arrays.emplace(name, read_npy(data, name, what)).second) damaged(what, "'" + name + "' is there twice");
    at += kEntrySize + name_size + reader.number(at + 30, 2) + reader.number(at + 32, 2);
  }
  if (at != end) damaged(what, "its list of parts is wrong");
  return arrays;
}

}  // namespace robot_rl

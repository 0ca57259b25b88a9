#include "crc32.h"

#include <array>

namespace robot_rl {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0u);
    table[byte] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> data, std::uint32_t before) noexcept {
  std::uint32_t value = ~before;
  for (const auto byte : data) value = kTable[(value ^ static_cast<std::uint32_t>(byte)) & 0xff] ^ (value >> 8);
  return ~value;
}

}  // namespace robot_rl

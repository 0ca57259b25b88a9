#include "crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace robot_rl {

namespace {

static_assert(std::endian::native == std::endian::little);

/// Eight tables: eight bytes a step, since the real-time threads compute the CRC of every state and command.
constexpr std::array<std::array<std::uint32_t, 256>, 8> kTable = [] {
  std::array<std::array<std::uint32_t, 256>, 8> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ (rest & 1 ? 0xedb88320u : 0u);
    table[0][byte] = rest;
  }
  for (std::size_t row = 1; row < 8; ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto before = table[row - 1][byte];
      table[row][byte] = (before >> 8) ^ table[0][before & 255];
    }
  }
  return table;
}();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> data, std::uint32_t before) noexcept {
  std::uint32_t crc = ~before;
  const auto* at = reinterpret_cast<const std::uint8_t*>(data.data());
  auto left = data.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint32_t low, high;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = kTable[7][low & 255] ^ kTable[6][(low >> 8) & 255] ^ kTable[5][(low >> 16) & 255] ^ kTable[4][low >> 24] ^
          kTable[3][high & 255] ^ kTable[2][(high >> 8) & 255] ^ kTable[1][(high >> 16) & 255] ^ kTable[0][high >> 24];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTable[0][(crc ^ *at) & 255];
  return ~crc;
}

}  // namespace robot_rl

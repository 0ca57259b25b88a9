// CRC-32 as zlib computes it (polynomial 0xEDB88320, reflected), for logs and packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace robot_rl {

/// CRC-32 of `data`; `before` is the CRC-32 of the preceding data, 0 at the start.
std::uint32_t crc32(std::span<const std::byte> data, std::uint32_t before = 0) noexcept;

}  // namespace robot_rl

// SHA-256 (FIPS 180-4).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace robot_rl {

/// The hash of some bytes in hexadecimal.
std::string sha256(std::span<const std::byte> data);

}  // namespace robot_rl

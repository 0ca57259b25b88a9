// Ed25519 signatures by OpenSSL's libcrypto, opened when one has to be checked.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "error.h"

namespace robot_rl {

/// Whether `signature` (64 bytes) is the signature of `data` by the public key in a PEM file ("-----BEGIN PUBLIC
/// KEY-----"). Throws UserError if the key cannot be read or libcrypto is not available.
bool is_signed_by(std::span<const std::byte> data, std::span<const std::byte> signature,
                  const std::filesystem::path& key);

}  // namespace robot_rl

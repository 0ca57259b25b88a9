// Arrays as numpy.savez writes them: a ZIP archive, stored and not compressed, of .npy files.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "error.h"

namespace robot_rl {

/// One array; `data` points into the file's bytes.
struct NpyArray {
  std::string type;  // as NumPy writes it: "<f4", "|b1"
  std::vector<long long> shape;
  std::span<const std::byte> data;
  /// "float32 (256, 3)" for a message.
  std::string shown() const;
};

/// Read the arrays of an archive by name. Every size is checked against the file, and the CRC-32 of every part. `what`
/// begins the message. Throws ContractError.
std::map<std::string, NpyArray> read_npz(std::span<const std::byte> file, const std::string& what);

}  // namespace robot_rl

// Engines that were built on this device, kept in a folder. A file that is damaged, or that others may write to, is
// not used: an engine contains code.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace robot_rl {

/// Everything that an engine depends on.
struct EngineKey {
  std::string model_sha256, tensorrt, cuda, gpu, precision;
  /// A file name, such as "3b1f...-trt10.13.3-cuda13.0-NVIDIA_Thor-sm110-fp32.engine".
  std::string file_name() const;
};

/// The folder for engines: `option`, or else robot-rl in $XDG_CACHE_HOME or in $HOME/.cache. Throws UserError if
/// none is known.
std::filesystem::path engine_folder(const std::filesystem::path& option);

/// An engine that was stored; empty if none can be used, and then `why` has the reason if there was a
/// file.
std::vector<std::byte> load_engine(const std::filesystem::path& folder, const EngineKey& key, std::string& why);

/// Store an engine: complete or not at all. False if it could not be written, for the reason in `why`. Nothing is
/// thrown.
bool store_engine(const std::filesystem::path& folder, const EngineKey& key, std::span<const std::byte> engine,
                  std::string& why);

}  // namespace robot_rl

// Feeds a log back through policy and commander and compares every command bit for bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "backend.h"

namespace robot_rl {

struct LogReplay {
  std::uint64_t events = 0, commands = 0, steps = 0, states = 0;  // played back
  bool cut = false;           // the log ends in the middle: killed, or the disk was full
  bool same_backend = false;  // library, precision and processor are those of the log: its actions are computed anew
                              // and have to be the same; elsewhere the log's actions are taken
  double action_difference = 0;  // largest one of an action computed anew from the log's
  std::string backend, recorded_backend;
  std::string no_backend;  // why the network could not be run here; empty: it was
  std::string difference;  // the first one, in one line; empty: every command came again, bit for bit
};

/// Play a log back. `options.name` "auto": the backend of the log, or none where it cannot be had here. Throws
/// UserError where the log cannot be read or the backend asked for cannot be had, ContractError where what it holds
/// does not fit.
LogReplay replay_log(const std::filesystem::path& path, const BackendOptions& options);

/// Model name of this machine's processor, which decides on the network's last bits.
std::string processor();

}  // namespace robot_rl

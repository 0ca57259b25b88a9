// Replays a log through policy and commander and compares every command bit for bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "backend.h"

namespace robot_rl {

struct LogReplay {
  std::uint64_t events = 0, commands = 0, steps = 0, states = 0;  // replayed
  bool cut = false;           // the log is truncated: the program was killed, or the disk was full
  bool same_backend = false;  // library, precision and processor are those of the log: actions are computed again
                              // and must be equal; otherwise the log's actions are used
  double action_difference = 0;  // largest difference of an action computed again from the log's
  std::string backend, recorded_backend;
  std::string no_backend;  // why the network could not be run here; empty: it was
  std::string difference;  // the first one, in one line; empty: every command was reproduced bit for bit
};

/// Replay a log. `options.name` "auto": the backend of the log, or none if it is not available. Throws
/// UserError if the log cannot be read or the requested backend is not available, ContractError if the log's content
/// does not fit together.
LogReplay replay_log(const std::filesystem::path& path, const BackendOptions& options);

/// Model name of this machine's processor, on which the last bits of the network's results depend.
std::string processor();

}  // namespace robot_rl

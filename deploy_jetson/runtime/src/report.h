// The report at the end of a run, as JSON.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bundle.h"
#include "follow.h"
#include "loop.h"
#include "options.h"
#include "team_link.h"
#include "transport.h"

namespace robot_rl {

/// Requests, findings and results of a run, in addition to the loop's own counters.
struct RunFacts {
  std::string backend, backend_why, transport, refused;  // `refused`: why the bundle may not move the robot
  std::vector<std::string> not_permitted;
  bool memory_locked = false, cpus_awake = false;
  bool watchdog = false;
  std::uint32_t watchdog_takeovers = 0;
  std::int64_t watchdog_longest_silence_ns = 0;
  std::int64_t begin_ns = 0, end_ns = 0;  // of the run
  std::vector<Change> changes;
  std::vector<BundleFate> bundles;  // the first one, and those that came while it ran
  std::string log_path, log_why;
  std::uint64_t log_events = 0, log_lost = 0, log_bytes = 0;
  TransportCounters transport_counters;
  std::optional<TeamLinkCounters> team_link;  // of a team
  Fault fault = Fault::kNone;  // before the run was stopped
};

std::string report_json(const Options& options, const Bundle& bundle, const Loop& loop, const RunFacts& facts);

/// Write a text file completely or not at all; a pipe or device (/dev/stdout) is written to directly. Throws
/// std::system_error.
void write_whole(const std::filesystem::path& path, const std::string& text);

}  // namespace robot_rl

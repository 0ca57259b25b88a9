// The latency of a network run at a fixed rate, as on a robot: between two runs the caches become cold.
#pragma once

#include <span>
#include <string>

#include "backend.h"

namespace robot_rl {

struct Pace {
  int runs = 1000;
  double period_s = 0.002;
  int fifo = 0;  // priority of the measuring thread under SCHED_FIFO; 0: unchanged
  int cpu = -1;  // core that it is pinned to; -1: none
  bool rehearse = true;  // warm it before each run, as the loop does
};

/// Results; times of an inference [us], without the wait for its scheduled time.
struct PacedLatency {
  int runs = 0, failed = 0;
  double p50_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
  double rehearsal_p50_us = 0;              // duration of the warming before a run
  double late_p50_us = 0, late_p99_us = 0;  // from the scheduled to the actual start of a run
  double allocations_per_run = 0;  // inside the network's library
  long page_faults = 0;            // of the measuring thread, over all runs
  std::string refused;  // why priority or core were not permitted; empty: permitted, or not requested
};

/// Run in a thread of its own, cycling through `observations` (rows of observation_size). The state of a policy
/// with a memory is carried from run to run.
PacedLatency measure_paced(Backend& backend, std::span<const float> observations, const Pace& pace);

}  // namespace robot_rl

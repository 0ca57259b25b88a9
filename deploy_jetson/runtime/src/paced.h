// The latency of a network run at a steady pace, as a robot runs it: between two runs the caches go cold.
#pragma once

#include <span>
#include <string>

#include "backend.h"

namespace robot_rl {

struct Pace {
  int runs = 1000;
  double period_s = 0.002;
  int fifo = 0;  // priority of the measuring thread under SCHED_FIFO; 0: as it is
  int cpu = -1;  // core that it stays on; -1: any
  bool rehearse = true;  // warm it before each run, as the loop does
};

/// What was measured; times of an inference without waiting for its turn [us].
struct PacedLatency {
  int runs = 0, failed = 0;
  double p50_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
  double rehearsal_p50_us = 0;              // what warming it took, before a run
  double late_p50_us = 0, late_p99_us = 0;  // from when a run was due to when it began
  double allocations_per_run = 0;  // calls of operator new inside the network's library
  long page_faults = 0;            // of the measuring thread, over all runs
  std::string refused;  // why priority or core were not permitted; empty: they were, or not asked for
};

/// Run in a thread of its own, going round through `observations` (rows of observation_size). The state of a policy
/// with a memory goes on from run to run.
PacedLatency measure_paced(Backend& backend, std::span<const float> observations, const Pace& pace);

}  // namespace robot_rl

// The noise of exploration: standard normal numbers without a state, so that a replay draws the same ones.
#pragma once

#include <cstdint>

namespace robot_rl {

struct Settings;

/// What a policy adds to its actions to explore.
struct Exploration {
  double std = 0;  // of the noise, in the unit of the raw action; 0: none
  std::uint64_t seed = 0;
  bool in_backend = false;  // the backend's actions contain it already: they were taken from a log

  static Exploration of(const Settings& settings);
};

/// A number of the standard normal distribution, a pure function of its arguments (a counter-based generator).
double standard_normal(std::uint64_t seed, std::uint64_t step, std::uint64_t joint) noexcept;

}  // namespace robot_rl

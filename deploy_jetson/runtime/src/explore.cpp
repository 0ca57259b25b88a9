#include "explore.h"

#include <cmath>

#include "settings.h"

namespace robot_rl {

namespace {

/// The output function of splitmix64 (Steele, Lea and Flood, 2014).
std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Exploration Exploration::of(const Settings& settings) {
  return {settings.explore_std, static_cast<std::uint64_t>(settings.explore_seed), false};
}

double standard_normal(std::uint64_t seed, std::uint64_t step, std::uint64_t joint) noexcept {
  constexpr double kUnit = 0x1p-53, kTurn = 2 * 3.14159265358979323846;
  const std::uint64_t key = mixed(mixed(mixed(seed) + step) + joint);
  const double radius = static_cast<double>((mixed(key) >> 11) + 1) * kUnit;  // in (0, 1]: its logarithm is finite
  const double angle = static_cast<double>(mixed(key + 1) >> 11) * kUnit;
  return std::sqrt(-2 * std::log(radius)) * std::cos(kTurn * angle);  // Box-Muller
}

}  // namespace robot_rl

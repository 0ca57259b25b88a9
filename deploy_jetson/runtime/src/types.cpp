#include "types.h"

#include <array>

namespace robot_rl {

const char* name_of(Phase phase) {
  static constexpr std::array<const char*, 4> kNames = {"BOOT", "DAMPING", "STAND", "POLICY"};
  const auto index = static_cast<std::size_t>(phase);
  return index < kNames.size() ? kNames[index] : "unknown";
}

const char* name_of(Fault fault) {
  static constexpr std::array<const char*, static_cast<std::size_t>(Fault::kCount)> kNames = {
      "none",      "not_finite",  "state_age",   "state_frozen",     "deadline",      "tilt",
      "joint_position", "joint_velocity", "action_rate", "effort",   "temperature",   "motor_fault",
      "second_commander", "operator_lost", "operator_stop", "refused", "internal",
      "sensor_frozen", "imu_disagrees", "stalled", "robot_clock", "command_size"};
  const auto index = static_cast<std::size_t>(fault);
  return index < kNames.size() ? kNames[index] : "unknown";
}

}  // namespace robot_rl

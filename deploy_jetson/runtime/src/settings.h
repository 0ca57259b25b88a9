// Settings of the runtime in addition to the bundle. Each has a default that fits the contract.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace robot_rl {

/// Limits that decide when something is wrong; safety.h describes what each is compared with.
struct SafetyLimits {
  double state_age_s = 0.020;
  double state_frozen_s = 0.050;
  double sensor_frozen_s = 0.100;    // a sensor repeats its bits while another one shows that it had to change
  double imu_disagree_rad = 0.3;     // between gyroscope and orientation, over the last 0.2 s; see sensors.h
  int missed_deadlines = 3;          // control periods in a row without an action in time
  double tilt_rad = 1.0;             // between the base's z axis and the vertical
  double position_margin = 0.10;     // beyond a joint's limits [rad or m]
  double velocity_factor = 1.5;      // of a joint's velocity limit; the impact of a foot exceeds 1 for a moment
  double action_rate = 20.0;         // largest change of an action (output of the network) in a control step
  double effort_factor = 1.5;        // of a joint's effort limit, measured by the motor
  double temperature_c = 95.0;
  double operator_s = 0.5;           // since the operator's last message; 0: no operator needed
};

struct Settings {
  double writer_period_s = 0.002;
  double stand_s = 2.0;              // ramp from the current joint positions to the fallback pose
  double blend_s = 0.5;              // from the standing pose to the policy's targets
  double stop_s = 1.0;               // from POLICY to STAND: a velocity command is zero for so long before
  double lost_stand_s = 0.0;         // how long to stand without the operator, before damping; 0: damp at once
  double damping_scale = 1.0;        // times the contract's kd, in DAMPING
  double explore_std = 0.0;          // of normal noise on every action, in its raw unit; 0: none
  int explore_seed = 0;              // of that noise
  SafetyLimits limits;
  std::optional<int> steps_per_state;  // policy runs at every nth state instead of by the clock (lockstep)
};

/// Set one by its name, "stand_s" or "limits.tilt_rad". Throws UserError with its name, value and range.
void set_setting(Settings& settings, std::string_view name, std::string_view value);

/// Apply a JSON file with the same names ({"stand_s": 3, "limits": {"tilt_rad": 0.8}}). Throws UserError.
void read_settings(Settings& settings, const std::filesystem::path& path);

/// All of them as such a JSON object, on one line; numbers in shortest form that reads back to the same bits.
std::string settings_json(const Settings& settings);
/// The inverse, of a text instead of a file; `where` names it in errors. Throws UserError.
void read_settings_text(Settings& settings, std::string_view text, std::string_view where);

}  // namespace robot_rl

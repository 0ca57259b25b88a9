#include "settings.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "error.h"
#include "settings_table.h"

namespace robot_rl {

namespace {

std::string shortest(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string names() {
  std::string all;
  for (const SettingRow& row : setting_table()) all += (all.empty() ? "" : ", ") + std::string(row.name);
  return all;
}

}  // namespace

std::span<const SettingRow> setting_table() {
  using S = Settings;
  static const SettingRow kRows[] = {
      {"writer_period_s", [](S& s) { return SettingSlot{&s.writer_period_s}; }, 0.0005, 0.1},
      {"stand_s", [](S& s) { return SettingSlot{&s.stand_s}; }, 0, 60},
      {"blend_s", [](S& s) { return SettingSlot{&s.blend_s}; }, 0, 60},
      {"stop_s", [](S& s) { return SettingSlot{&s.stop_s}; }, 0, 60, false, true},
      {"lost_stand_s", [](S& s) { return SettingSlot{&s.lost_stand_s}; }, 0, 1e6, false, true},
      {"damping_scale", [](S& s) { return SettingSlot{&s.damping_scale}; }, 0.01, 100},
      {"explore_std", [](S& s) { return SettingSlot{&s.explore_std}; }, 0, 2, true},
      {"explore_seed", [](S& s) { return SettingSlot{&s.explore_seed}; }, 0, 2147483647, true},
      {"steps_per_state", [](S& s) { return SettingSlot{&s.steps_per_state}; }, 1, 1000},
      {"limits.state_age_s", [](S& s) { return SettingSlot{&s.limits.state_age_s}; }, 0.001, 1e6},
      {"limits.state_frozen_s", [](S& s) { return SettingSlot{&s.limits.state_frozen_s}; }, 0.001, 1e6},
      {"limits.sensor_frozen_s", [](S& s) { return SettingSlot{&s.limits.sensor_frozen_s}; }, 0.001, 1e6},
      {"limits.imu_disagree_rad", [](S& s) { return SettingSlot{&s.limits.imu_disagree_rad}; }, 0.01, 1e6},
      {"limits.missed_deadlines", [](S& s) { return SettingSlot{&s.limits.missed_deadlines}; }, 1, 1e6},
      {"limits.tilt_rad", [](S& s) { return SettingSlot{&s.limits.tilt_rad}; }, 0.01, 4},
      {"limits.position_margin", [](S& s) { return SettingSlot{&s.limits.position_margin}; }, 0, 1e6},
      {"limits.velocity_factor", [](S& s) { return SettingSlot{&s.limits.velocity_factor}; }, 0.01, 1e6},
      {"limits.action_rate", [](S& s) { return SettingSlot{&s.limits.action_rate}; }, 0.001, 1e9},
      {"limits.effort_factor", [](S& s) { return SettingSlot{&s.limits.effort_factor}; }, 0.01, 1e6},
      {"limits.temperature_c", [](S& s) { return SettingSlot{&s.limits.temperature_c}; }, 20, 1e6},
      {"limits.operator_s", [](S& s) { return SettingSlot{&s.limits.operator_s}; }, 0, 1e6},
  };
  return kRows;
}

void put_setting(Settings& settings, const SettingRow& row, double value, const std::string& shown) {
  const SettingSlot slot = row.slot(settings);
  const bool whole = !std::holds_alternative<double*>(slot);
  if (!(value >= row.lower && value <= row.upper) || (whole && value != std::floor(value))) {
    throw UserError(std::string(row.name) + "=" + shown + ": must be " +
                    (whole ? "a whole number" : "a number") + " from " + shortest(row.lower) + " to " +
                    shortest(row.upper));
  }
  if (const auto* number = std::get_if<double*>(&slot)) {
    **number = value;
  } else if (const auto* count = std::get_if<int*>(&slot)) {
    **count = static_cast<int>(value);
  } else {
    *std::get<std::optional<int>*>(slot) = static_cast<int>(value);
  }
}

const SettingRow& find_setting(std::string_view name) {
  for (const SettingRow& row : setting_table()) {
    if (row.name == name) return row;
  }
  throw UserError("setting '" + std::string(name) + "' is unknown; the settings are " + names());
}

void set_setting(Settings& settings, std::string_view name, std::string_view value) {
  const SettingRow& row = find_setting(name);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size()) number = std::nan("");
  put_setting(settings, row, number, std::string(value));
}

}  // namespace robot_rl

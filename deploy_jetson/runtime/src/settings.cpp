#include "settings.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "error.h"
#include "json.h"
#include "settings_table.h"

namespace robot_rl {

std::span<const SettingRow> setting_table() {
  using S = Settings;
  using L = SafetyLimits;
  static const SettingRow kRows[] = {
      {"writer_period_s", &S::writer_period_s, 0.0005, 0.1},
      {"stand_s", &S::stand_s, 0, 60},
      {"blend_s", &S::blend_s, 0, 60},
      {"stop_s", &S::stop_s, 0, 60, false, true},
      {"lost_stand_s", &S::lost_stand_s, 0, 1e6, false, true},
      {"damping_scale", &S::damping_scale, 0.01, 100},
      {"explore_std", &S::explore_std, 0, 2, true},
      {"explore_seed", &S::explore_seed, 0, 2147483647, true},
      {"steps_per_state", &S::steps_per_state, 1, 1000},
      {"limits.state_age_s", &L::state_age_s, 0.001, 1e6},
      {"limits.state_frozen_s", &L::state_frozen_s, 0.001, 1e6},
      {"limits.sensor_frozen_s", &L::sensor_frozen_s, 0.001, 1e6},
      {"limits.imu_disagree_rad", &L::imu_disagree_rad, 0.01, 1e6},
      {"limits.missed_deadlines", &L::missed_deadlines, 1, 1e6},
      {"limits.tilt_rad", &L::tilt_rad, 0.01, 4},
      {"limits.position_margin", &L::position_margin, 0, 1e6},
      {"limits.velocity_factor", &L::velocity_factor, 0.01, 1e6},
      {"limits.action_rate", &L::action_rate, 0.001, 1e9},
      {"limits.effort_factor", &L::effort_factor, 0.01, 1e6},
      {"limits.temperature_c", &L::temperature_c, 20, 1e6},
      {"limits.operator_s", &L::operator_s, 0, 1e6},
  };
  return kRows;
}

SettingSlot SettingRow::slot(Settings& settings) const {
  const auto place = [&settings](auto member) -> SettingSlot {
    if constexpr (requires { settings.*member; }) return &(settings.*member);
    if constexpr (requires { settings.limits.*member; }) return &(settings.limits.*member);
  };
  return std::visit(place, member);
}

void put_setting(Settings& settings, const SettingRow& row, double value, const std::string& shown) {
  const SettingSlot slot = row.slot(settings);
  const bool whole = !std::holds_alternative<double*>(slot);
  if (!(value >= row.lower && value <= row.upper) || (whole && value != std::floor(value))) {
    throw UserError(std::string(row.name) + "=" + shown + ": must be " +
                    (whole ? "a whole number" : "a number") + " from " + json_number(row.lower) + " to " +
                    json_number(row.upper));
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
  throw UserError("setting '" + std::string(name) + "' is unknown; the settings are " +
                  joined(setting_table(), &SettingRow::name));
}

void set_setting(Settings& settings, std::string_view name, std::string_view value) {
  const SettingRow& row = find_setting(name);
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size()) number = std::nan("");
  put_setting(settings, row, number, std::string(value));
}

namespace {

constexpr std::string_view kLimits = "limits";

void put_member(Settings& settings, const std::string& name, const Json& value) {
  const SettingRow& row = find_setting(name);
  if (value.kind == Json::Kind::kNull && std::holds_alternative<std::optional<int>*>(row.slot(settings))) {
    *std::get<std::optional<int>*>(row.slot(settings)) = std::nullopt;
    return;
  }
  if (value.kind != Json::Kind::kInt && value.kind != Json::Kind::kFloat) {
    throw UserError(name + "=" + value.shown() + ": must be a number");
  }
  set_setting(settings, name, value.text);
}

void put_members(Settings& settings, const Json& object, const std::string& prefix) {
  for (const auto& [key, value] : object.members) {
    if (prefix.empty() && key == kLimits) {
      if (value.kind != Json::Kind::kObject) {
        throw UserError("limits=" + value.shown() + ": must be an object of limits");
      }
      put_members(settings, value, "limits.");
    } else {
      put_member(settings, prefix + key, value);
    }
  }
}

std::string shown_slot(const SettingSlot& slot) {
  if (const auto* number = std::get_if<double*>(&slot)) return json_number(**number);
  if (const auto* count = std::get_if<int*>(&slot)) return std::to_string(**count);
  const auto& maybe = *std::get<std::optional<int>*>(slot);
  return maybe ? std::to_string(*maybe) : "null";
}

}  // namespace

void read_settings_text(Settings& settings, std::string_view text, std::string_view where) {
  try {
    const Json value = parse_json(text, std::string(where));
    if (value.kind != Json::Kind::kObject) throw UserError(value.shown() + ": must be an object of settings");
    put_members(settings, value, "");
  } catch (const ContractError& error) {
    throw UserError(error.what());
  } catch (const UserError& error) {
    throw UserError(std::string(where) + ": " + error.what());
  }
}

void read_settings(Settings& settings, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    throw UserError("--settings=" + path.string() + ": cannot be read; must be a JSON file of settings");
  }
  read_settings_text(settings, text.str(), path.filename().string());
}

std::string settings_json(const Settings& settings) {
  Settings copy = settings;
  JsonObject all, limits;
  for (const SettingRow& row : setting_table()) {
    const std::string value = shown_slot(row.slot(copy));
    if (row.name.starts_with("limits.")) {
      limits.raw(row.name.substr(kLimits.size() + 1), value);
    } else {
      all.raw(row.name, value);
    }
  }
  return all.raw(kLimits, limits.str()).str();
}

}  // namespace robot_rl

// The settings by name, with their ranges; used by the two files that read and write them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "settings.h"

namespace robot_rl {

/// Where a setting is stored.
using SettingSlot = std::variant<double*, int*, std::optional<int>*>;

struct SettingRow {
  std::string_view name;  // "stand_s", "limits.tilt_rad"
  SettingSlot (*slot)(Settings&);
  double lower, upper;    // both allowed
  bool explores = false;  // is about exploration, which logs without it do not mention
  bool later = false;     // logs of earlier versions do not mention it
};

std::span<const SettingRow> setting_table();
/// Throws UserError that lists the known names.
const SettingRow& find_setting(std::string_view name);
/// Set if within the range, otherwise throw UserError; `shown` is the value in its message.
void put_setting(Settings& settings, const SettingRow& row, double value, const std::string& shown);

}  // namespace robot_rl

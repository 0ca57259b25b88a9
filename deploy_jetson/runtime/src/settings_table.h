// The settings by name, with their ranges; used by the two files that read and write them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "settings.h"

namespace robot_rl {

/// Where a setting is stored, and of which member it is the place.
using SettingSlot = std::variant<double*, int*, std::optional<int>*>;
using SettingMember = std::variant<double Settings::*, int Settings::*, std::optional<int> Settings::*,
                                   double SafetyLimits::*, int SafetyLimits::*>;

struct SettingRow {
  std::string_view name;  // "stand_s", "limits.tilt_rad"
  SettingMember member;
  double lower, upper;    // both allowed
  bool explores = false;  // is about exploration, which logs without it do not mention
  bool later = false;     // logs of earlier versions do not mention it
  SettingSlot slot(Settings& settings) const;
};

std::span<const SettingRow> setting_table();
/// Throws UserError that lists the known names.
const SettingRow& find_setting(std::string_view name);
/// Set if within the range, otherwise throw UserError; `shown` is the value in its message.
void put_setting(Settings& settings, const SettingRow& row, double value, const std::string& shown);

}  // namespace robot_rl

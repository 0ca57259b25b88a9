#include <fstream>
#include <sstream>

#include "error.h"
#include "json.h"
#include "settings_table.h"

namespace robot_rl {

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

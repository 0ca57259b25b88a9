// The vocabulary of observation terms, the same as in robot_rl_deploy.terms.
#include <algorithm>
#include <cmath>
#include <set>

#include "contract_parts.h"
#include "json.h"
#include "types.h"

namespace robot_rl {
namespace {

using Names = std::vector<std::string_view>;

struct Signal {
  std::string_view name;
  Names frames;
};

const std::vector<Signal>& signals() {
  static const std::vector<Signal> kSignals = {
      {"joint_pos", {"joint"}},      {"joint_vel", {"joint"}},
      {"imu_gyro", {"base", "imu"}}, {"imu_quat_wxyz", {"base", "world", "imu"}},
      {kMeasured, {"base", "heading", "world", "imu", "joint", "none"}},
      {"imu_acc", {"imu"}},          {"foot_contact", {"none"}},
      {"foot_force", {"none"}},      {"command", {"base"}},
      {"last_action", {"none"}},     {"clock", {"none"}},
  };
  return kSignals;
}

struct Transform {
  std::string_view name, signal;
  Names units;
};

const std::vector<Transform>& transforms() {
  static const std::vector<Transform> kTransforms = {
      {"identity", "joint_pos", {"rad", "m"}},
      {"identity", "joint_vel", {"rad/s", "m/s"}},
      {"identity", "imu_gyro", {"rad/s"}},
      {"identity", "imu_quat_wxyz", {"1"}},
      {"identity", "imu_acc", {"m/s^2"}},
      {"identity", kMeasured, {"m", "m/s", "m/s^2", "rad", "rad/s", "rad/s^2", "N", "N m", "s", "1"}},
      {"identity", "foot_contact", {"1"}},
      {"identity", "foot_force", {"N"}},
      {"identity", "command", {"m/s, m/s, rad/s", "m/s", "rad/s", "m", "rad", "1", "mixed"}},
      {"identity", "last_action", {"1"}},
      {"minus_default", "joint_pos", {"rad", "m"}},
      {"minus_offset", kMeasured, {"m"}},
      {"sin_cos", "joint_pos", {"1"}},
      {"projected_gravity", "imu_quat_wxyz", {"1"}},
      {"sin_cos_phase", "clock", {"1"}},
  };
  return kTransforms;
}

bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_vocabulary(const ObservationSpec& term, const std::string& where) {
  Names known, fitting;
  const auto kind = kind_of(term.signal);
  const Signal* signal = nullptr;
  for (const auto& each : signals()) {
    known.push_back(each.name);
    if (each.name == kind) signal = &each;
  }
  if (!signal) {
    refuse(where + " signal", shown(term.signal), "no robot measures it; it must be one of " + joined(known));
  }
  const Transform* transform = nullptr;
  for (const auto& each : transforms()) {
    if (each.signal != kind) continue;
    fitting.push_back(each.name);
    if (each.name == term.transform) transform = &each;
  }
  if (!transform) {
    refuse(where + " transform", shown(term.transform), "for " + term.signal + " it must be one of " + joined(fitting));
  }
  if (!has(transform->units, term.unit)) {
    refuse(where + " unit", shown(term.unit), "it must be one of " + joined(transform->units));
  }
  if (!has(signal->frames, term.frame)) {
    refuse(where + " frame", shown(term.frame), "it must be one of " + joined(signal->frames));
  }
}

long long grid_points(const GridSpec& grid, const std::string& where) {
  at_least(where + ".resolution", grid.resolution, 0, true);
  if (grid.size.size() != 2 || std::min(grid.size[0], grid.size[1]) < 0) {
    refuse(where + ".size", "a list of " + std::to_string(grid.size.size()), "it must be [x, y] of at least 0 m");
  }
  if (grid.offset.size() != 2) {
    refuse(where + ".offset", "a list of " + std::to_string(grid.offset.size()), "it must be [x, y]");
  }
  const double columns = grid.size[0] / grid.resolution + 1e-6, rows = grid.size[1] / grid.resolution + 1e-6;
  if (!(std::max(columns, rows) < kMaxSize)) {
    refuse(where + ".resolution", shown(grid.resolution),
           "the grid would have more than " + std::to_string(kMaxSize) + " points");
  }
  return (static_cast<long long>(rows) + 1) * (static_cast<long long>(columns) + 1);
}

GridSpec read_grid(const Json& value, const std::string& where) {
  const Fields fields(value, where, {"size", "resolution", "offset"});
  GridSpec grid;
  grid.size = read_numbers(fields, "size");
  grid.resolution = fields.number("resolution");
  grid.offset = read_numbers(fields, "offset");
  return grid;
}

std::vector<double> vector_of(const Fields& fields, std::string_view name, std::size_t size) {
  auto values = read_numbers(fields, name);
  if (values.size() != size) {
    refuse(fields.path(name), "a list of " + std::to_string(values.size()),
           "it must be " + std::to_string(size) + " numbers");
  }
  return values;
}

/// Check a camera and return the number of values of its images.
long long image_values(const Json& value, const std::string& where) {
  const Fields fields(value, where,
                      {"kind", "width", "height", "focal", "center", "body", "pos", "quat_wxyz", "near", "far",
                       "period_s"});
  const auto& kind = fields.text("kind");
  const long long channels = kind == "depth" ? 1 : kind == "rgb" ? 3 : 0;
  if (channels == 0) refuse(where + ".kind", shown(kind), "it must be one of depth, rgb");
  long long count = channels;
  for (const char* side : {"width", "height"}) {
    count *= bounded(where + "." + side, fields.integer(side), 1, kMaxMeasured);
  }
  fields.text("body");
  const auto focal = vector_of(fields, "focal", 2);
  vector_of(fields, "center", 2);
  vector_of(fields, "pos", 3);
  vector_of(fields, "quat_wxyz", 4);
  if (!(std::min(focal[0], focal[1]) > 0)) refuse(where + ".focal", "a list of 2", "it must be more than 0");
  const double near = fields.number("near"), far = fields.number("far");
  at_least(where + ".near", near, 0, false);
  at_least(where + ".period_s", fields.number("period_s"), 0, true);
  if (!(near < far)) refuse(where + ".near", shown(near), "it must be less than far (" + json_number(far) + ")");
  return count;
}

/// Names of the joints read, in the order of the term; the contract resolves them.
std::vector<std::string> read_joints(const Json& value, const std::string& where) {
  std::vector<std::string> names;
  for (const auto& item : read_list(value, where)) {
    names.push_back(read_text(item, at_index(where, names.size())));
  }
  unique(where, names);
  return names;
}

void read_params(const Json& params, const std::string& where, ObservationSpec& term,
                 std::optional<std::vector<std::string>>& joints) {
  if (params.kind != Json::Kind::kObject) refuse(where + " params", params.shown(), "an object is needed");
  Names needed;
  if (term.transform == "sin_cos_phase") needed = {"frequency_hz", "gate", "gate_norm"};
  if (term.transform == "minus_offset") needed = {"grid", "offset"};
  const bool of_joints = term.signal == "joint_pos" || term.signal == "joint_vel";
  const bool is_measured = kind_of(term.signal) == kMeasured;
  for (const auto& [key, value] : params.members) {
    if (!has(needed, key) && !(of_joints && key == "joints") && !(is_measured && key == "image")) {
      refuse(where + " params." + key, value.shown(), "there is no such parameter of " + term.transform);
    }
  }
  for (const auto key : needed) {
    if (!params.find(key)) {
      throw ContractError(where + " params." + std::string(key) + " is missing; " + term.transform + " needs it");
    }
  }
  const auto at = [&](std::string_view key) -> const Json& { return *params.find(key); };
  const auto path = [&](std::string_view key) { return where + " params." + std::string(key); };
  if (const auto* names = params.find("joints")) joints = read_joints(*names, path("joints"));
  if (const auto* image = params.find("image")) {
    if (const auto count = image_values(*image, path("image")); count != term.size) {
      refuse(where + " size", std::to_string(term.size), "its image has " + std::to_string(count) + " values");
    }
  }
  if (term.transform == "minus_offset") {
    term.offset = read_number(at("offset"), path("offset"));
    term.grid = read_grid(at("grid"), path("grid"));
    if (const auto count = grid_points(*term.grid, path("grid")); count != term.size) {
      refuse(where + " size", std::to_string(term.size), "its grid has " + std::to_string(count) + " points");
    }
  }
  if (term.transform == "sin_cos_phase") {
    term.frequency_hz = read_number(at("frequency_hz"), path("frequency_hz"));
    term.gate_norm = read_number(at("gate_norm"), path("gate_norm"));
    at_least(path("frequency_hz"), term.frequency_hz, 0, false);
    at_least(path("gate_norm"), term.gate_norm, 0, false);
    const auto& gate = at("gate");
    if (gate.kind != Json::Kind::kString || (gate.text != "none" && gate.text != "command")) {
      refuse(path("gate"), gate.shown(), "it must be one of none, command");
    }
    term.gated = gate.text == "command";
  }
}

}  // namespace

std::string current_name(std::string signal) { return signal == "height_scan" ? std::string(kHeightScan) : signal; }

std::string_view kind_of(std::string_view signal) {
  constexpr auto kPrefix = kMeasured.substr(0, kMeasured.find('<'));
  if (!signal.starts_with(kPrefix)) return signal;
  const auto name = signal.substr(kPrefix.size());
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto fits = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  const bool good = !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), fits);
  return good ? kMeasured : std::string_view();
}

void at_least(const std::string& where, double value, double low, bool strictly) {
  if (strictly ? value > low : value >= low) return;
  refuse(where, shown(value), (strictly ? "it must be more than " : "it must be at least ") + json_number(low));
}

int bounded(const std::string& where, long long value, long long low, long long high) {
  if (value >= low && value <= high) return static_cast<int>(value);
  refuse(where, std::to_string(value), "it must be in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
}

std::string at_index(std::string_view list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

std::vector<double> read_numbers(const Fields& fields, std::string_view name) {
  std::vector<double> values;
  for (const auto& item : fields.list(name)) {
    values.push_back(read_number(item, at_index(fields.path(name), values.size())));
  }
  return values;
}

void unique(const std::string& where, const std::vector<std::string>& names) {
  std::set<std::string_view> seen;
  for (const auto& name : names) {
    if (name.empty()) refuse(where, shown(name), "a name is needed");
    if (!seen.insert(name).second) refuse(where, shown(name), "the name is given twice; names must be unique");
  }
}

ReadTerm read_term(const Json& value, const std::string& path) {
  const Fields fields(value, path,
                      {"name", "signal", "transform", "unit", "frame", "size", "scale", "clip", "history", "params"});
  ReadTerm result;
  auto& term = result.term;
  term.name = fields.text("name");
  term.signal = current_name(fields.text("signal"));
  term.transform = fields.text("transform");
  term.unit = fields.text("unit");
  term.frame = fields.text("frame");
  const std::string where = "observation '" + term.name + "':";
  fields.integer("size");
  term.scale = fields.number("scale");
  fields.integer("history");
  check_vocabulary(term, where);
  if (term.scale == 0) refuse(where + " scale", shown(term.scale), "it must not be 0");
  if (const auto& clip = fields.at("clip"); clip.kind != Json::Kind::kNull) {
    const auto ends = read_numbers(fields, "clip");
    if (ends.size() != 2 || !(ends[0] < ends[1])) {
      refuse(where + " clip", clip.shown(), "it must be null or [low, high] with low < high");
    }
    term.clip = {ends[0], ends[1]};
  }
  term.size = bounded(where + " size", fields.integer("size"), 1, kMaxSize);
  term.history = bounded(where + " history", fields.integer("history"), 1, kMaxHistory);
  read_params(fields.at("params"), where, term, result.joints);
  return result;
}

}  // namespace robot_rl

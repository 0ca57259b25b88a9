// The optional part "precision" of a contract, as robot_rl_deploy.precision reads it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "contract_parts.h"
#include "json.h"

namespace robot_rl {
namespace {

constexpr const char* kPlain = "fp32";
constexpr long long kMinOpset = 19, kMaxOpset = 99;
constexpr double kMaxBound = 1.0;

bool has_grid(const std::string& mode) { return mode == "int8" || mode == "fp8"; }

LayerSpec read_layer(const Json& value, const std::string& path) {
  const Fields fields(value, path, {"name", "mode"}, {"input_scale"});
  LayerSpec layer{fields.text("name"), fields.text("mode"), {}};
  if (fields.find("input_scale") != nullptr) layer.input_scale = fields.number_or_null("input_scale");
  return layer;
}

void check_layer(const PrecisionSpec& precision, const LayerSpec& layer) {
  const std::string where = "layer '" + layer.name + "': ";
  if (layer.mode != kPlain && layer.mode != precision.mode) {
    refuse(where + "mode", shown(layer.mode), "it must be one of fp32, " + precision.mode);
  }
  if (!has_grid(layer.mode)) {
    if (layer.input_scale) {
      refuse(where + "input_scale", shown(*layer.input_scale), "a layer in " + layer.mode + " has none");
    }
    return;
  }
  if (!layer.input_scale) {
    refuse(where + "input_scale", "None", "a layer in " + layer.mode + " needs the step of its input's grid");
  }
  at_least(where + "input_scale", *layer.input_scale, 0, true);
}

}  // namespace

int PrecisionSpec::rounded() const {
  return static_cast<int>(
      std::count_if(layers.begin(), layers.end(), [](const LayerSpec& layer) { return layer.mode != kPlain; }));
}

std::string PrecisionSpec::summary() const {
  char bound[32];
  std::snprintf(bound, sizeof bound, "%.1e", action_bound);
  return mode + ": " + std::to_string(rounded()) + " of " + std::to_string(layers.size()) + " layers, actions within " +
         bound;
}

double Contract::target_tolerance(double action_bound) const {
  double scale = 1.0;
  for (const auto& action : actions) scale = std::max(scale, std::abs(action.scale));
  return std::max(kActionTolerance, action_bound * scale);
}

PrecisionSpec read_precision(const Json& value) {
  const Fields fields(value, "precision", {"mode", "opset", "layers", "action_bound"});
  PrecisionSpec precision;
  precision.mode = fields.text("mode");
  const auto opset = fields.integer("opset");
  std::vector<std::string> names;
  for (const auto& item : fields.list("layers")) {
    precision.layers.push_back(read_layer(item, at_index("precision.layers", names.size())));
    names.push_back(precision.layers.back().name);
  }
  precision.action_bound = fields.number("action_bound");
  if (precision.mode != "bf16" && !has_grid(precision.mode)) {
    refuse("precision.mode", shown(precision.mode), "it must be one of bf16, fp8, int8");
  }
  precision.opset = bounded("precision.opset", opset, kMinOpset, kMaxOpset);
  if (precision.layers.empty()) refuse("precision.layers", "[]", "at least one is needed");
  unique("precision.layers", names);
  for (const auto& layer : precision.layers) check_layer(precision, layer);
  if (!precision.rounded()) {
    refuse("precision.layers: mode of each", "'fp32'", "at least one must be " + precision.mode);
  }
  at_least("precision.action_bound", precision.action_bound, 0, true);
  if (precision.action_bound > kMaxBound) {
    refuse("precision.action_bound", shown(precision.action_bound), "it must be at most 1");
  }
  return precision;
}

}  // namespace robot_rl

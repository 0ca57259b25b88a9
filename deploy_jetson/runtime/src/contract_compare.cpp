#include "contract_compare.h"

#include "json.h"

namespace robot_rl {

namespace {

/// What belongs to the weights, and not to the robot.
bool may_differ(const std::string& path) {
  return path == "training" || path == "precision.action_bound" ||
         (path.starts_with("precision.layers[") && path.ends_with("].input_scale"));
}

bool is_number(const Json& value) { return value.kind == Json::Kind::kInt || value.kind == Json::Kind::kFloat; }

bool same_leaf(const Json& left, const Json& right) {
  if (is_number(left) && is_number(right)) {
    return left.text == right.text || read_number(left, "number") == read_number(right, "number");
  }
  return left.kind == right.kind && left.boolean == right.boolean && left.text == right.text;
}

std::string differs(const std::string& path, const std::string& now, const std::string& then) {
  return path + " is " + now + ", the running policy has " + then;
}

std::string difference(const Json& running, const Json& next, const std::string& path);

std::string object_difference(const Json& running, const Json& next, const std::string& path) {
  for (const auto& [name, value] : running.members) {
    const std::string inner = path.empty() ? name : path + "." + name;
    if (may_differ(inner)) continue;
    const Json* other = next.find(name);
    if (other == nullptr) return differs(inner, "missing", value.shown());
    if (auto found = difference(value, *other, inner); !found.empty()) return found;
  }
  for (const auto& [name, value] : next.members) {
    if (running.find(name) == nullptr) {
      return differs(path.empty() ? name : path + "." + name, value.shown(), "none");
    }
  }
  return {};
}

std::string difference(const Json& running, const Json& next, const std::string& path) {
  if (running.kind == Json::Kind::kObject && next.kind == running.kind) return object_difference(running, next, path);
  if (running.kind != Json::Kind::kArray || next.kind != running.kind) {
    return same_leaf(running, next) ? "" : differs(path, next.shown(), running.shown());
  }
  if (running.items.size() != next.items.size()) {
    return differs(path, "a list of " + std::to_string(next.items.size()), std::to_string(running.items.size()));
  }
  for (std::size_t k = 0; k < running.items.size(); ++k) {
    auto found = difference(running.items[k], next.items[k], path + "[" + std::to_string(k) + "]");
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace

std::string contract_difference(const std::string& running, const std::string& next) {
  const std::string what = "contract.json";
  return difference(parse_json(running, what), parse_json(next, what), "");
}

}  // namespace robot_rl

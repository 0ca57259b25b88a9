#include "contract.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "contract_parts.h"
#include "json.h"
#include "types.h"

namespace robot_rl {
namespace {

constexpr long long kMaxIteration = 1LL << 53;

std::string joint_list(const Contract& contract) {
  return joined(contract.joints, &JointSpec::name);
}

int joint_index(const Contract& contract, const std::string& name) {
  for (std::size_t i = 0; i < contract.joints.size(); ++i) {
    if (contract.joints[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

void check_position(const JointSpec& joint, const std::string& where, double position) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double low = joint.lower.value_or(-kInf), high = joint.upper.value_or(kInf);
  if (low <= position && position <= high) return;
  refuse(where, shown(position), "the limits of '" + joint.name + "' are [" + shown(low) + ", " + shown(high) + "]");
}

JointSpec read_joint(const Json& value, const std::string& path) {
  const Fields fields(value, path,
                      {"name", "default_pos", "kp", "kd", "effort_limit", "velocity_limit", "lower", "upper"});
  JointSpec joint;
  joint.name = fields.text("name");
  joint.default_pos = fields.number("default_pos");
  joint.kp = fields.number("kp");
  joint.kd = fields.number("kd");
  joint.effort_limit = fields.number("effort_limit");
  joint.velocity_limit = fields.number_or_null("velocity_limit");
  joint.lower = fields.number_or_null("lower");
  joint.upper = fields.number_or_null("upper");
  const std::string where = "joint '" + joint.name + "': ";
  at_least(where + "kp", joint.kp, 0, false);
  at_least(where + "kd", joint.kd, 0, false);
  at_least(where + "effort_limit", joint.effort_limit, 0, false);
  if (joint.velocity_limit) at_least(where + "velocity_limit", *joint.velocity_limit, 0, true);
  if (joint.lower && joint.upper && !(*joint.lower < *joint.upper)) {
    refuse(where + "lower", shown(*joint.lower), "it must be less than upper (" + shown(*joint.upper) + ")");
  }
  check_position(joint, where + "default_pos", joint.default_pos);
  return joint;
}

ActionSpec read_action(const Json& value, const std::string& path) {
  const Fields fields(value, path, {"joint", "kind", "scale", "offset", "clip"}, {"command", "max_error"});
  ActionSpec action;
  if (fields.find("command") != nullptr) action.command = fields.text("command");
  action.joint = fields.text("joint");
  const auto& kind = fields.text("kind");
  action.scale = fields.number("scale");
  action.offset = fields.number("offset");
  action.clip = fields.number_or_null("clip");
  const std::string where = "action of '" + action.joint + "': ";
  if (kind != "position" && kind != "velocity" && kind != "effort") {
    refuse(where + "kind", shown(kind), "it must be one of position, velocity, effort");
  }
  if (kind != "position") action.kind = kind == "effort" ? ActionKind::kEffort : ActionKind::kVelocity;
  if (action.scale == 0) {
    refuse(where + "scale", shown(action.scale), "the policy would move nothing; it must not be 0");
  }
  if (action.clip) at_least(where + "clip", *action.clip, 0, true);
  if (fields.find("max_error") != nullptr) {
    action.max_error = fields.number("max_error");
    at_least(where + "max_error", *action.max_error, 0, true);
    if (kind != "position") refuse(where + "max_error", shown(*action.max_error), "only a position target has one");
  }
  return action;
}

CommandSpec read_command(const Json& value, const std::string& path) {
  const Fields fields(value, path, {"name", "lower", "upper"});
  CommandSpec command{fields.text("name"), fields.number("lower"), fields.number("upper")};
  if (!(command.lower <= command.upper)) {
    refuse("command '" + command.name + "': lower", shown(command.lower),
           "it must not be more than upper (" + shown(command.upper) + ")");
  }
  return command;
}

TrainingSpec read_training(const Json& value) {
  const Fields fields(value, "training", {"run_id", "task", "git_commit", "iteration"});
  TrainingSpec training{fields.text("run_id"), fields.text("task"), fields.text("git_commit"), 0};
  training.iteration = fields.integer("iteration");
  for (const auto name : {"run_id", "task", "git_commit"}) {
    if (fields.text(name).empty()) refuse(fields.path(name), "''", "it must not be empty");
  }
  if (training.iteration < 0 || training.iteration > kMaxIteration) {
    refuse("training.iteration", std::to_string(training.iteration), "it must be in [0, 2^53]");
  }
  return training;
}

void read_layout(const Json& value, Contract& contract, long long& observation_size, long long& action_size) {
  const Fields fields(value, "layout", {"order", "history", "fill", "observation_size", "action_size"}, {"state_size"});
  for (const auto& [name, right] :
       {std::pair{"order", "term_major"}, {"history", "oldest_first"}, {"fill", "first_value"}}) {
    if (fields.text(name) != right) {
      refuse(fields.path(name), shown(fields.text(name)), "version 1 knows only '" + std::string(right) + "'");
    }
  }
  observation_size = fields.integer("observation_size");
  action_size = fields.integer("action_size");
  if (fields.find("state_size")) {
    contract.state_size = bounded("layout.state_size", fields.integer("state_size"), 0, kMaxSize);
  }
}

/// Read a list of parts and check that there are at most `most`, with unique names.
template <class T, class Read, class Name>
std::vector<T> read_parts(const Fields& fields, const char* list, int most, const Read& read, const Name& name) {
  std::vector<T> parts;
  std::vector<std::string> names;
  for (const auto& item : fields.list(list)) {
    parts.push_back(read(item, at_index(list, parts.size())));
    names.push_back(name(parts.back()));
  }
  unique(list, names);
  if (static_cast<int>(parts.size()) > most) {
    refuse(list, "a list of " + std::to_string(parts.size()), std::to_string(most) + " are the most");
  }
  return parts;
}

void check_actions(Contract& contract, long long action_size) {
  for (auto& action : contract.actions) {
    const std::string where = "action of '" + action.joint + "': ";
    action.joint_index = joint_index(contract, action.joint);
    if (action.joint_index < 0) {
      refuse(where + "joint", shown(action.joint), "it must be one of " + joint_list(contract));
    }
    const auto& joint = contract.joints[static_cast<std::size_t>(action.joint_index)];
    if (joint.effort_limit == 0) {
      refuse(where + "joint", shown(action.joint), "its effort_limit is 0, so nothing drives it");
    }
    if (action.kind == ActionKind::kPosition && joint.kp == 0) {
      refuse(where + "kind", "'position'", "a position target needs a kp of more than 0");
    }
    if (action.kind == ActionKind::kVelocity && !(joint.kp == 0 && joint.kd > 0)) {
      refuse(where + "kind", "'velocity'", "a velocity target needs a kp of 0 and a kd of more than 0");
    }
  }
  contract.action_size = static_cast<int>(contract.actions.size());
  if (action_size != contract.action_size) {
    refuse("layout.action_size", std::to_string(action_size),
           "there are " + std::to_string(contract.action_size) + " actions");
  }
}

/// Find the element of the observation that each action's component of the command is: in the newest frame of the
/// term that is the command itself.
void place_commanded(Contract& contract) {
  for (const auto& action : contract.actions) {
    const std::string where = "action of '" + action.joint + "': command";
    if (action.command.empty() != contract.actions[0].command.empty()) {
      refuse(where, shown(action.command), "all actions are around the command, or none is");
    }
  }
  if (contract.actions[0].command.empty()) return;
  int start = 0;
  for (const auto& term : contract.observations) {
    if (term.signal == "command" && term.transform == "identity" && term.scale == 1) {
      for (auto& action : contract.actions) {
        const auto found = std::find_if(contract.command.begin(), contract.command.end(),
                                        [&](const CommandSpec& part) { return part.name == action.command; });
        if (found == contract.command.end()) {
          refuse("action of '" + action.joint + "': command", shown(action.command),
                 "the command has no component of that name");
        }
        action.commanded = start + (term.history - 1) * term.size + static_cast<int>(found - contract.command.begin());
      }
      return;
    }
    start += term.size * term.history;
  }
  refuse("actions: command", shown(contract.actions[0].command), "no observation is the command itself, with scale 1");
}

/// The largest number of values of a signal in one state of the robot.
int most_of(const std::string& signal) {
  return signal == "foot_contact" || signal == "foot_force" ? kMaxFeet : kMaxSize;
}

void check_observations(Contract& contract, const std::vector<ReadTerm>& terms, const ReadMessages& messages,
                        long long observation_size) {
  for (const auto& read : terms) contract.observations.push_back(read.term);
  long long total = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    auto& term = contract.observations[i];
    const std::string where = "observation '" + term.name + "'";
    if ((term.signal == "command" || term.gated) && contract.command.empty()) {
      refuse(where, shown(term.signal), "it reads the command, but the contract has none");
    }
    resolve_term(contract, terms[i], where + ":", term);
    if (const int size = term_size(contract, term); term.size != size) {
      refuse(where + ": size", std::to_string(term.size),
             term.transform + " of " + term.signal + " is " + std::to_string(size) + " wide");
    }
    if (term.size > most_of(term.signal)) {
      refuse(where + ": size", std::to_string(term.size), std::to_string(most_of(term.signal)) + " are the most");
    }
    total += static_cast<long long>(term.size) * term.history;
  }
  place_measured(contract, messages);
  if (observation_size != total) {
    refuse("layout.observation_size", std::to_string(observation_size), "the terms add up to " + std::to_string(total));
  }
  if (total > kMaxSize) {
    refuse("layout.observation_size", std::to_string(total), std::to_string(kMaxSize) + " are the most");
  }
  contract.observation_size = static_cast<int>(total);
}

void check_times(const Contract& contract) {
  at_least("control_period_s", contract.control_period_s, 0, true);
  at_least("physics_timestep_s", contract.physics_timestep_s, 0, true);
  const double ratio = contract.control_period_s / contract.physics_timestep_s;
  if (!(1 - 1e-6 <= ratio) || !std::isfinite(ratio) || std::abs(ratio - std::nearbyint(ratio)) > 1e-6) {
    refuse("control_period_s", shown(contract.control_period_s),
           "it must be a multiple of physics_timestep_s (" + shown(contract.physics_timestep_s) + ")");
  }
}

void read_fallback(const Json& value, Contract& contract) {
  if (value.kind != Json::Kind::kObject) refuse("fallback_pose", value.shown(), "an object is needed");
  std::string odd;
  for (const auto& [name, position] : value.members) {
    read_number(position, "fallback_pose." + name);
    if (joint_index(contract, name) < 0) odd += (odd.empty() ? "" : ", ") + shown(name);
  }
  for (const auto& joint : contract.joints) {
    if (!value.find(joint.name)) odd += (odd.empty() ? "" : ", ") + shown(joint.name);
  }
  if (!odd.empty()) throw ContractError("fallback_pose: it must name every joint once; see [" + odd + "]");
  for (const auto& joint : contract.joints) {
    const std::string where = "fallback_pose." + joint.name;
    contract.fallback_pose.push_back(read_number(*value.find(joint.name), where));
    check_position(joint, where, contract.fallback_pose.back());
  }
}

void check_version(const Json& value) {
  const auto* version = value.find("schema_version");
  if (!version || (version->kind == Json::Kind::kInt && version->text == std::to_string(kSchemaVersion))) return;
  refuse("schema_version", version->shown(), "this program reads version " + std::to_string(kSchemaVersion));
}

}  // namespace

int term_size(const Contract& contract, const ObservationSpec& term) {
  if (term.transform == "projected_gravity") return 3;
  if (term.transform == "sin_cos_phase") return 2;
  const bool of_joints = term.signal == "joint_pos" || term.signal == "joint_vel";
  const int width = of_joints ? static_cast<int>(term.joints.size()) : contract.signal_size(term.signal);
  return term.transform == "sin_cos" ? 2 * width : width;
}

void resolve_term(const Contract& contract, const ReadTerm& read, const std::string& where, ObservationSpec& term) {
  if (term.signal != "joint_pos" && term.signal != "joint_vel") return;
  if (!read.joints) {
    for (std::size_t i = 0; i < contract.joints.size(); ++i) term.joints.push_back(static_cast<int>(i));
    return;
  }
  for (const auto& name : *read.joints) {
    term.joints.push_back(joint_index(contract, name));
    if (term.joints.back() < 0) {
      refuse(where + " params.joints", shown(name), "it must be among " + joint_list(contract));
    }
  }
}

Contract read_contract(std::string_view text) {
  const Json value = parse_json(text, "contract.json");
  check_version(value);
  const Fields fields(value, "",
                      {"schema_version", "robot", "joints", "actions", "observations", "layout", "control_period_s",
                       "physics_timestep_s", "command", "fallback_pose", "training"},
                      {"team", "messages", "precision"});
  Contract contract;
  contract.robot = fields.text("robot");
  unique("robot", {contract.robot});
  const auto joint_of = [](const auto& part) { return part.joint; };
  const auto name_of = [](const auto& part) { return part.name; };
  contract.joints = read_parts<JointSpec>(fields, "joints", kMaxJoints, read_joint, name_of);
  contract.actions = read_parts<ActionSpec>(fields, "actions", kMaxJoints, read_action, joint_of);
  const auto terms = read_parts<ReadTerm>(fields, "observations", kMaxSize, read_term,
                                          [](const ReadTerm& read) { return read.term.name; });
  long long observation_size = 0, action_size = 0;
  read_layout(fields.at("layout"), contract, observation_size, action_size);
  contract.control_period_s = fields.number("control_period_s");
  contract.physics_timestep_s = fields.number("physics_timestep_s");
  contract.command = read_parts<CommandSpec>(fields, "command", kMaxCommand, read_command, name_of);
  contract.training = read_training(fields.at("training"));
  const Json* precision = fields.find("precision");
  if (precision != nullptr && precision->kind != Json::Kind::kNull) contract.precision = read_precision(*precision);
  if (contract.joints.empty()) refuse("joints", "[]", "at least one is needed");
  if (contract.actions.empty()) refuse("actions", "[]", "at least one is needed");
  if (terms.empty()) refuse("observations", "[]", "at least one is needed");
  check_actions(contract, action_size);
  auto messages = read_messages(fields, contract);
  check_observations(contract, terms, messages, observation_size);
  check_messages(std::move(messages), contract);
  place_commanded(contract);
  check_times(contract);
  read_fallback(fields.at("fallback_pose"), contract);
  check_plausible(contract);
  return contract;
}

int Contract::signal_size(std::string_view signal) const {
  if (signal == "joint_pos" || signal == "joint_vel") return static_cast<int>(joints.size());
  if (signal == "last_action") return static_cast<int>(actions.size());
  if (signal == "command") return static_cast<int>(command.size());
  if (signal == "imu_gyro" || signal == "imu_acc") return 3;
  if (signal == "imu_quat_wxyz") return 4;
  for (const auto& term : observations) {
    if (term.signal == signal && signal != "clock") return term.size;
  }
  return 0;
}

const ObservationSpec* Contract::measured_term(int place) const {
  for (const auto& term : observations) {
    if (term.place >= 0 && place >= term.place && place < term.place + term.size) return &term;
  }
  return nullptr;
}

std::vector<std::string> Contract::needed_signals() const {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& term : observations) {
    if (term.signal != "clock" && term.signal != "last_action") add(term.signal);
  }
  for (const auto& term : observations) {
    if (term.gated) add("command");
  }
  return names;
}

std::vector<int> resolve_joints(const Contract& contract, std::span<const std::string> available) {
  unique("a joint of the robot", {available.begin(), available.end()});
  std::vector<int> places;
  std::string missing, extra;
  for (const auto& joint : contract.joints) {
    const auto found = std::find(available.begin(), available.end(), joint.name);
    if (found == available.end()) missing += (missing.empty() ? "missing " : ", ") + joint.name;
    places.push_back(static_cast<int>(found - available.begin()));
  }
  for (const auto& name : available) {
    if (joint_index(contract, name) < 0) extra += (extra.empty() ? "extra " : ", ") + name;
  }
  if (missing.empty() && extra.empty()) return places;
  const std::string both = missing + (missing.empty() || extra.empty() ? "" : "; ") + extra;
  throw ContractError("the robot's joints do not fit the contract of '" + contract.robot + "': " + both);
}

}  // namespace robot_rl

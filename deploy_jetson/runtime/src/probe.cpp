#include "probe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>

#include "contract_parts.h"
#include "golden.h"

namespace robot_rl {
namespace {

constexpr double kAmplitudes[] = {1.0, 1e2, 1e4};
constexpr unsigned kPatterns = 32;
constexpr double kJointSpeed = 30.0, kTurn = std::numbers::pi, kFreeAction = 100.0;

/// One element of the observation: its range on a robot, and its clip and scale in the contract.
struct Element {
  double reach = 1, low = 0, high = 0, scale = 1;
  int component = -1;  // of the command
};

double signal_reach(const std::string& signal) {
  if (signal == "imu_gyro") return 35;
  if (signal == "imu_acc") return 160;
  if (signal == "foot_force") return 1e3;
  return kind_of(signal) == kMeasured ? 10 : 1;
}

double joint_reach(const ObservationSpec& term, const JointSpec& joint) {
  if (term.signal == "joint_vel") return joint.velocity_limit.value_or(kJointSpeed);
  const double middle = term.transform == "minus_default" ? joint.default_pos : 0;
  return std::max(std::abs(joint.lower.value_or(joint.default_pos - kTurn) - middle),
                  std::abs(joint.upper.value_or(joint.default_pos + kTurn) - middle));
}

double reach_of(const Contract& contract, const ObservationSpec& term, std::size_t i) {
  if (term.signal == "command")
    return std::max(std::abs(contract.command[i].lower), std::abs(contract.command[i].upper));
  if (term.signal == "last_action") return contract.actions[i].clip.value_or(kFreeAction);
  const bool of_joints = term.signal == "joint_pos" || term.signal == "joint_vel";
  if (!of_joints || term.transform == "sin_cos") return signal_reach(term.signal);
  return joint_reach(term, contract.joints[static_cast<std::size_t>(term.joints[i])]);
}

std::vector<Element> elements_of(const Contract& contract) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<Element> elements;
  for (const auto& term : contract.observations) {
    const auto [low, high] = term.clip.value_or(std::pair{-kInf, kInf});
    for (int frame = 0; frame < term.history; ++frame) {
      for (int i = 0; i < term.size; ++i) {
        const auto place = static_cast<std::size_t>(i);
        elements.push_back({reach_of(contract, term, place), low, high, term.scale, term.signal == "command" ? i : -1});
      }
    }
  }
  return elements;
}

/// Sign of an element in a Walsh pattern: of the lowest four bits of its place, or of the four above.
double sign_of(unsigned pattern, std::size_t place) {
  const auto bits = static_cast<unsigned>(place >> (pattern >= 16 ? 4 : 0)) & 15u;
  return std::popcount((pattern & 15u) & bits) % 2 ? -1.0 : 1.0;
}

class Prober {
 public:
  Prober(const Contract& contract, Backend& backend, const ProbeLimits& limits)
      : contract_(contract),
        backend_(backend),
        limits_(limits),
        elements_(elements_of(contract)),
        observation_(elements_.size()),
        state_(static_cast<std::size_t>(contract.state_size)),
        after_(state_.size()),
        action_(contract.actions.size()),
        target_(contract.actions.size()) {}

  void run() {
    attempt([](std::size_t, const Element&) { return 0.0; });
    for (std::size_t k = 0; k < contract_.command.size(); ++k) {
      for (const double end : {contract_.command[k].lower, contract_.command[k].upper}) {
        attempt(
            [&](std::size_t, const Element& element) { return element.component == static_cast<int>(k) ? end : 0; });
      }
    }
    for (const double amplitude : kAmplitudes) {
      if (amplitude > limits_.amplitude) continue;
      for (unsigned pattern = 0; pattern < kPatterns; ++pattern) {
        for (std::size_t i = 0; i < state_.size(); ++i) {
          state_[i] = pattern % 2 ? static_cast<float>(sign_of(pattern, i)) : 0.0f;
        }
        attempt([&](std::size_t i, const Element& element) { return amplitude * element.reach * sign_of(pattern, i); });
      }
    }
  }

 private:
  template <class Value>
  void attempt(const Value& value) {
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const auto& element = elements_[i];
      const double clipped = std::min(std::max(value(i, element), element.low), element.high);
      observation_[i] = static_cast<float>(clipped * element.scale);
    }
    if (!backend_.run(observation_, state_, action_, target_, after_)) refuse("the network cannot be run");
    for (const float remembered : after_) {
      if (!std::isfinite(remembered)) refuse("the next state is not finite");
    }
    for (std::size_t i = 0; i < action_.size(); ++i) check(contract_.actions[i], action_[i], target_[i]);
    ++index_;
  }

  void check(const ActionSpec& spec, float action, float target) const {
    if (!std::isfinite(action) || !std::isfinite(target)) {
      refuse("the action of '" + spec.joint + "' is " + number(action) + ", its joint target " + number(target) +
             ", not finite");
    }
    if (spec.clip) {
      const double bound = static_cast<float>(*spec.clip);
      if (std::abs(static_cast<double>(action)) > bound * (1 + limits_.clip_slack)) {
        refuse("the action of '" + spec.joint + "' is " + number(action) + ", beyond the contract's clip " +
               number(bound));
      }
    }
    const double right = static_cast<double>(stated_target(spec, action, observation_));
    if (std::abs(static_cast<double>(target) - right) > limits_.tolerance * std::max(1.0, std::abs(right))) {
      refuse("the joint target of '" + spec.joint + "' is " + number(target) + ", the contract's " + number(right));
    }
  }

  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw ContractError("policy.onnx: " + what + ", at extreme observation " + std::to_string(index_) +
                        "; this bundle must not move a robot, export it again");
  }

  const Contract& contract_;
  Backend& backend_;
  const ProbeLimits limits_;
  const std::vector<Element> elements_;
  std::vector<float> observation_, state_, after_, action_, target_;
  int index_ = 0;
};

}  // namespace

void probe_network(const Contract& contract, Backend& backend, const ProbeLimits& limits) {
  Prober(contract, backend, limits).run();
}

}  // namespace robot_rl

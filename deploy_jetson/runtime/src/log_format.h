// The content of a log: its messages, field by field, and the names of its metadata. Shared by logger and reader.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "events.h"
#include "policy.h"
#include "safety.h"
#include "types.h"

namespace robot_rl {

inline constexpr const char* kLogFormat = "robot_rl.log";
inline constexpr const char* kLogVersion = "2";
/// Of a log without exploration and without a change of the bundle, which older programs read, too.
inline constexpr const char* kLogVersionBefore = "1";
/// Names of the metadata records and attachments.
inline constexpr const char* kLogRun = "run";
inline constexpr const char* kLogSettings = "settings";
inline constexpr const char* kLogContract = "contract.json";
inline constexpr const char* kLogModel = "policy.onnx";

/// After the two names, for the files of a bundle that took over later.
std::string attachment_suffix(const std::string& identity);
/// The text of such an event, and the bundle's identity in it; empty if it is another text.
std::string swap_text(const std::string& identity);
std::string swapped_identity(const std::string& text);

/// One message of a log, of any kind.
struct LogEvent {
  std::uint64_t order = 0;
  std::int64_t time_ns = 0;  // CLOCK_MONOTONIC, argument of the call
  EventKind kind = EventKind::kState;
  LowState state;
  OperatorInput input;
  PolicyOutput output;
  std::vector<float> command, observation;  // of the policy's step
  LowCommand sent;
  Finding finding;
  std::string text;  // the event in words
};

/// Topic and message of a kind of event.
struct LogChannel {
  const char* topic;
  const char* schema;
};
inline constexpr std::array<LogChannel, 5> kLogChannels = {{{"/state", "robot_rl/msg/State"},
                                                            {"/operator", "robot_rl/msg/Operator"},
                                                            {"/policy", "robot_rl/msg/PolicyStep"},
                                                            {"/command", "robot_rl/msg/Command"},
                                                            {"/event", "robot_rl/msg/Event"}}};
/// Which of the channels a kind of event goes to.
constexpr std::size_t channel_of(EventKind kind) {
  return kind <= EventKind::kCommand ? static_cast<std::size_t>(kind) : kLogChannels.size() - 1;
}

/// The fields of a channel's message, in order; see cdr.h. `measured`: whether states have measured values, which only
/// the log of a policy that reads some contains.
template <class Archive>
void log_fields(Archive& a, std::size_t channel, LogEvent& e, bool measured) {
  a.number("order", e.order);
  a.number("time_ns", e.time_ns);
  switch (channel) {
    case 0: return state_fields(a, e.state, measured);
    case 1: return operator_fields(a, e.input);
    case 2: return policy_fields(a, e);
    case 3: return command_fields(a, e.sent);
    default: break;
  }
  a.number("kind", e.kind);
  a.text("text", e.text);
  a.number("fault", e.finding.fault);
  a.number("joint", e.finding.joint);
  a.number("value", e.finding.value);
  a.number("limit", e.finding.limit);
  a.number("signal", e.finding.signal);
}

template <class Archive>
void state_fields(Archive& a, LowState& s, bool measured) {
  a.number("sequence", s.sequence);
  a.number("robot_time_ns", s.robot_time_ns);
  a.number("receive_time_ns", s.receive_time_ns);
  a.number("commander", s.commander);
  a.fixed("quat_wxyz", s.quat_wxyz);
  a.fixed("gyro", s.gyro);
  a.fixed("acc", s.acc);
  a.list("joint_pos", s.joint_pos, s.joints);
  a.list("joint_vel", s.joint_vel, s.joints);
  a.list("joint_effort", s.joint_effort, s.joints);
  a.list("temperature_c", s.temperature_c, s.joints);
  a.list("motor_fault", s.motor_fault, s.joints);
  a.list("foot_contact", s.foot_contact, s.feet);
  a.list("foot_force", s.foot_force, s.feet);
  a.list("height_scan", s.height_scan, s.heights);
  if (measured) a.list("measured", s.measured, s.measured_count);
}

template <class Archive>
void operator_fields(Archive& a, OperatorInput& o) {
  a.number("sequence", o.sequence);
  a.number("receive_time_ns", o.receive_time_ns);
  a.number("request", o.request);
  a.list("command", o.command, o.size);
}

template <class Archive>
void policy_fields(Archive& a, LogEvent& e) {
  auto& p = e.output;
  a.number("step", p.step);
  a.number("state_sequence", p.state_sequence);
  a.number("state_robot_time_ns", p.state_robot_time_ns);
  a.number("state_receive_time_ns", p.state_receive_time_ns);
  a.number("begin_ns", p.begin_ns);
  a.number("observed_ns", p.observed_ns);
  a.number("done_ns", p.done_ns);
  a.number("reset", p.reset);
  a.number("ok", p.ok);
  a.list("action", p.action, p.actions);
  a.list("target", p.target, p.actions);
  a.list("command", e.command);
  a.list("observation", e.observation);
}

template <class Archive>
void command_fields(Archive& a, LowCommand& c) {
  a.number("sequence", c.sequence);
  a.number("commander", c.commander);
  a.number("state_sequence", c.state_sequence);
  a.number("state_robot_time_ns", c.state_robot_time_ns);
  a.number("state_age_ns", c.state_age_ns);
  a.number("send_time_ns", c.send_time_ns);
  a.number("phase", c.phase);
  a.number("fault", c.fault);
  a.number("from_policy", c.from_policy);
  a.list("q", c.q, c.joints);
  a.list("dq", c.dq, c.joints);
  a.list("kp", c.kp, c.joints);
  a.list("kd", c.kd, c.joints);
  a.list("tau", c.tau, c.joints);
}

}  // namespace robot_rl

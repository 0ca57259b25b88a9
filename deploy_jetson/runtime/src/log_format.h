// The content of a log: its messages, field by field, and the names of its metadata. Shared by logger and reader.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "events.h"
#include "fields.h"
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
    case 0: return fields(a, e.state, measured);
    case 1: return fields(a, e.input);
    case 2: {
      fields(a, e.output);
      a.list("command", e.command);
      return a.list("observation", e.observation);
    }
    case 3: return fields(a, e.sent);
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

}  // namespace robot_rl

// Transports of states and commands. A transport resolves joints by name: its states and commands are in the contract's
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract.h"
#include "types.h"

namespace robot_rl {

/// The robot's description of itself.
struct RobotDescription {
  std::string robot;
  std::vector<std::string> joints;  // in the robot's own order
  int feet = 0;     // numbers of values in each state
  int heights = 0;  // of a program of an earlier version: a height scan, which comes before the measured values
  int measured = 0;
};

struct TransportCounters {
  std::uint64_t states = 0, commands = 0, lost = 0, duplicate = 0, old = 0, damaged = 0, foreign = 0, send_failed = 0;
  std::uint64_t allocations = 0;  // by a thread that sends, for which the caller of `send` does not wait
};

/// Their names in reports.
inline constexpr std::pair<const char*, std::uint64_t TransportCounters::*> kTransportCounters[] = {
    {"states", &TransportCounters::states},       {"commands", &TransportCounters::commands},
    {"lost", &TransportCounters::lost},           {"duplicate", &TransportCounters::duplicate},
    {"old", &TransportCounters::old},             {"damaged", &TransportCounters::damaged},
    {"foreign", &TransportCounters::foreign},     {"send_failed", &TransportCounters::send_failed},
    {"allocations", &TransportCounters::allocations}};

/// One end at the policy's side. Nothing is allocated after `connect`.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Find the robot, get its joints and resolve them. Throws ContractError if they do not fit, UserError after
  /// `timeout_s` without an answer.
  virtual RobotDescription connect(const Contract& contract, double timeout_s) = 0;
  /// Sleep until something arrived or the deadline (CLOCK_MONOTONIC) passed; returns whether something did. Never
  /// spins.
  virtual bool wait(std::int64_t deadline_ns) noexcept = 0;
  /// Take the newest state, if it was not taken before; older ones are counted and dropped; false: none.
  virtual bool take_state(LowState& state) noexcept = 0;
  /// Take the newest message of the operator, if it was not taken before; a request to damp is never replaced by a
  /// later message.
  virtual bool take_operator(OperatorInput& input) noexcept = 0;
  /// Send, or hand over to a thread that sends; callers ensure that one thread sends at a time. False if the system
  /// refused: of what is handed over, the last one that was sent.
  virtual bool send(const LowCommand& command) noexcept = 0;
  /// Whether another program commanded the robot within the last half second.
  virtual bool second_commander() const noexcept = 0;
  virtual TransportCounters counters() const noexcept = 0;
  /// "udp 127.0.0.1:9870", for log and messages.
  virtual std::string identity() const = 0;
};

/// Make a transport from its address: "udp:127.0.0.1:9870" (where the robot listens), "shm:NAME", "dds:unitree_go" or
/// "dds:unitree_hg" with options "?domain=0&interface=lo". `operator_address`: where this end listens for the operator,
/// such as "udp:127.0.0.1:9871"; "robot" or empty: only by way of the robot, such as its remote control; "none". Throws
/// UserError.
std::unique_ptr<Transport> make_transport(const std::string& address, const std::string& operator_address,
                                          std::uint64_t commander);

}  // namespace robot_rl

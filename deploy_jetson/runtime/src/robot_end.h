// The robot's side of a transport, for simulators and tests: states out, commands in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport.h"
#include "types.h"

namespace robot_rl {

/// One end at the robot's side; one thread uses it. Joints are in the robot's own order here.
class RobotEnd {
 public:
  virtual ~RobotEnd() = default;
  /// Sleep until something arrived or the deadline (CLOCK_MONOTONIC) passed; returns whether something did.
  virtual bool wait(std::int64_t deadline_ns) noexcept = 0;
  /// Take the next command in the order of arrival, from any sender; false: none. Also answers greetings.
  virtual bool take_command(LowCommand& command) noexcept = 0;
  /// Send to every client that wants states; returns how many. Sequence 0: one more than the last. Commander 0: the one
  /// of the last command, or another one than the receiver if one commanded since its last state.
  virtual int send_state(const LowState& state) noexcept = 0;
  /// The same with one bit flipped after the checksum was computed; `bit` selects it, any number is allowed.
  virtual int send_corrupt(const LowState& state, std::uint32_t bit) noexcept = 0;
  /// Forward an operator's message to every client that wants states.
  virtual int send_operator(const OperatorInput& input, std::uint64_t source) noexcept = 0;
  /// Number of connected clients.
  virtual int clients() const noexcept = 0;
  /// `commands` taken and `states` sent, and messages that arrived damaged, foreign, twice or late.
  virtual TransportCounters counters() const noexcept = 0;
  virtual std::string identity() const = 0;
};

/// Serve a robot at an address of make_transport's kinds. Throws UserError.
std::unique_ptr<RobotEnd> make_robot_end(const std::string& address, const RobotDescription& robot);
/// The kind for CycloneDDS.
std::unique_ptr<RobotEnd> make_dds_robot_end(const std::string& address, const RobotDescription& robot);

}  // namespace robot_rl

// The robot's side of a transport, for simulators and tests: states out, commands in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport.h"
#include "types.h"

namespace robot_rl {

/// One end at the robot's side; one thread uses it. Joints stand in the robot's own order here.
class RobotEnd {
 public:
  virtual ~RobotEnd() = default;
  /// Sleep until something arrived or the deadline (CLOCK_MONOTONIC) passed; whether something did.
  virtual bool wait(std::int64_t deadline_ns) noexcept = 0;
  /// The next command in the order of arrival, whoever sent it; false: none. Greetings are answered on the way.
  virtual bool take_command(LowCommand& command) noexcept = 0;
  /// Send to everyone that wants states; how many. Sequence 0: one more than the last. Commander 0: whose command came
  /// last, or that of somebody else than the receiver where there was one since its last state.
  virtual int send_state(const LowState& state) noexcept = 0;
  /// The same with one bit turned behind its checksum's back; `bit` chooses which, any number will do.
  virtual int send_corrupt(const LowState& state, std::uint32_t bit) noexcept = 0;
  /// Hand an operator's message on to everyone that wants states.
  virtual int send_operator(const OperatorInput& input, std::uint64_t source) noexcept = 0;
  /// How many said hello and not goodbye.
  virtual int clients() const noexcept = 0;
  /// `commands` taken and `states` sent, and what arrived damaged, foreign, twice or late.
  virtual TransportCounters counters() const noexcept = 0;
  virtual std::string identity() const = 0;
};

/// Serve a robot at an address of make_transport's kinds. Throws UserError.
std::unique_ptr<RobotEnd> make_robot_end(const std::string& address, const RobotDescription& robot);
/// The kind for CycloneDDS.
std::unique_ptr<RobotEnd> make_dds_robot_end(const std::string& address, const RobotDescription& robot);

}  // namespace robot_rl

// What the robots of a team tell each other. To the rest of the program it is the transport: the states that it hands
// on also have what this robot hears of the others.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "channel.h"
#include "contract.h"
#include "observe.h"
#include "protocol.h"
#include "transport.h"

namespace robot_rl {

struct RadioOptions {
  std::string name;               // of this robot, one of the team
  std::string hear;               // where to listen, udp:HOST:PORT; empty: it hears nobody
  std::vector<std::string> tell;  // where the others listen
};

struct RadioCounters {
  std::uint64_t told = 0, heard = 0, old = 0, damaged = 0, foreign = 0, send_failed = 0;
};

class Radio final : public Transport {
 public:
  /// `contract` must outlive it. Throws UserError: the team has no robot of that name, or an address is invalid.
  Radio(std::unique_ptr<Transport> inner, const Contract& contract, const RadioOptions& options);
  RobotDescription connect(const Contract& contract, double timeout_s) override;
  bool wait(std::int64_t deadline_ns) noexcept override { return inner_->wait(deadline_ns); }
  /// Tells what the state says, and completes it with what was heard. Allocates nothing.
  bool take_state(LowState& state) noexcept override;
  bool take_operator(OperatorInput& input) noexcept override { return inner_->take_operator(input); }
  bool send(const LowCommand& command) noexcept override { return inner_->send(command); }
  void follow(const LowCommand& command) noexcept override { inner_->follow(command); }
  bool second_commander() const noexcept override { return inner_->second_commander(); }
  TransportCounters counters() const noexcept override { return inner_->counters(); }
  std::string identity() const override { return inner_->identity(); }
  RadioCounters radio_counters() const noexcept;
  /// A line about a robot whose messages are not those of this contract; empty if there is none.
  std::string odd() const;

 private:
  struct Station {
    std::int64_t heard_ns = 0;  // 0: nothing yet
    std::uint64_t sequence = 0;
    std::vector<float> values;
  };
  void listen(std::int64_t now) noexcept;
  void take_tell(std::span<const std::byte> data, std::int64_t now) noexcept;
  void complete(LowState& state, std::int64_t now) const noexcept;
  void tell(const LowState& state) noexcept;

  std::unique_ptr<Transport> inner_;
  const Contract* contract_;
  Contract told_;  // its observations are the terms of the messages
  Observer observer_;
  std::unique_ptr<DatagramSocket> ear_;
  std::vector<std::unique_ptr<DatagramSender>> mouths_;
  std::vector<Station> stations_;  // of the team, in its order
  std::size_t own_ = 0;
  std::uint32_t layout_ = 0;
  int width_ = 0;
  std::int64_t period_ns_ = 0, next_ns_ = 0;
  Tell out_, in_;
  std::vector<std::byte> frame_;
  std::atomic<std::uint64_t> told_count_{0}, heard_{0}, old_{0}, damaged_{0}, foreign_{0}, send_failed_{0};
  std::atomic<int> odd_sender_{-1}, odd_count_{0};
};

}  // namespace robot_rl

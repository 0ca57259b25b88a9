// The messages between the robots of a team. To the rest of the program it is the transport: the states that it hands
// on also have what this robot received from the others.
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

struct TeamLinkOptions {
  std::string name;               // of this robot, one of the team
  std::string listen;             // where to listen, udp:HOST:PORT; empty: it receives nothing
  std::vector<std::string> send;  // where the others listen
};

struct TeamLinkCounters {
  std::uint64_t sent = 0, received = 0, old = 0, damaged = 0, foreign = 0, send_failed = 0;
};

class TeamLink final : public Transport {
 public:
  /// `contract` must outlive it. Throws UserError: the team has no robot of that name, or an address is invalid.
  TeamLink(std::unique_ptr<Transport> inner, const Contract& contract, const TeamLinkOptions& options);
  RobotDescription connect(const Contract& contract, double timeout_s) override;
  bool wait(std::int64_t deadline_ns) noexcept override { return inner_->wait(deadline_ns); }
  /// Sends this robot's messages, and adds those that it received to the state. Allocates nothing.
  bool take_state(LowState& state) noexcept override;
  bool take_operator(OperatorInput& input) noexcept override { return inner_->take_operator(input); }
  bool send(const LowCommand& command) noexcept override { return inner_->send(command); }
  bool second_commander() const noexcept override { return inner_->second_commander(); }
  TransportCounters counters() const noexcept override { return inner_->counters(); }
  std::string identity() const override { return inner_->identity(); }
  TeamLinkCounters team_counters() const noexcept;
  /// A line about a robot whose messages are not those of this contract; empty if there is none.
  std::string mismatch() const;

 private:
  struct Member {
    std::int64_t received_ns = 0;  // 0: nothing yet
    std::uint64_t sequence = 0;
    std::vector<float> values;
  };
  void receive(std::int64_t now) noexcept;
  void take_message(std::span<const std::byte> data, std::int64_t now) noexcept;
  void complete(LowState& state, std::int64_t now) const noexcept;
  void broadcast(const LowState& state) noexcept;

  std::unique_ptr<Transport> inner_;
  const Contract* contract_;
  Contract sent_contract_;  // its observations are the terms of the messages
  Observer observer_;
  std::unique_ptr<DatagramSocket> socket_;
  std::vector<std::unique_ptr<DatagramSender>> senders_;
  std::vector<Member> members_;  // of the team, in its order
  std::size_t own_ = 0;
  std::uint32_t layout_ = 0;
  int width_ = 0;
  std::int64_t period_ns_ = 0, next_ns_ = 0;
  TeamMessage out_, in_;
  std::vector<std::byte> frame_;
  std::atomic<std::uint64_t> sent_{0}, received_{0}, old_{0}, damaged_{0}, foreign_{0}, send_failed_{0};
  std::atomic<int> mismatched_sender_{-1}, mismatched_count_{0};
};

}  // namespace robot_rl

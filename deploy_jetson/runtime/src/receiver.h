// Common part of the policy's ends of all transports: the newest state and the operator's newest message, until taken.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "channel.h"
#include "operator_box.h"
#include "protocol.h"
#include "transport_parts.h"

namespace robot_rl {

/// A transport without its channel. wait, take_state and take_operator belong to one thread, send to one at a time.
class Receiver : public Transport {
 public:
  bool wait(std::int64_t deadline_ns) noexcept final {
    return fresh_ || wait_for_data(deadline_ns, operator_ ? operator_->fd() : -1);
  }
  bool take_state(LowState& state) noexcept final;
  bool take_operator(OperatorInput& input) noexcept final;
  bool second_commander() const noexcept final;
  TransportCounters counters() const noexcept final { return counters_.get(); }
  std::string identity() const final { return identity_; }

 protected:
  static constexpr int kMaxDrain = 256;  // messages taken at once, so that a flood delays nothing else

  Receiver(std::string identity, const std::string& operator_address, std::uint64_t commander);
  /// Sleep until the robot's side sent something, `also_fd` (-1: none) can be read, or the deadline passed.
  virtual bool wait_for_data(std::int64_t deadline_ns, int also_fd) noexcept = 0;
  /// Take the messages of the robot's side; a state becomes `newest_` and sets `fresh_`.
  virtual void drain_robot() noexcept = 0;
  /// An operator's message, from any channel.
  void take_operator_frame(const Frame& frame) noexcept;

  const std::uint64_t commander_;
  CommanderWatch watch_;
  AtomicCounters counters_;
  OperatorBox box_;
  bool fresh_ = false;
  LowState newest_;
  std::array<std::byte, kMaxFrame> in_{};

 private:
  void drain() noexcept;

  std::string identity_;
  std::optional<DatagramSocket> operator_;
};

}  // namespace robot_rl

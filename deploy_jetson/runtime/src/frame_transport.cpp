// The policy's end of our own protocol, the same over UDP and shared memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

#include "address.h"
#include "channel.h"
#include "protocol.h"
#include "receiver.h"
#include "rt.h"
#include "sequence.h"
#include "transport_parts.h"

namespace robot_rl {
namespace {

constexpr std::int64_t kHelloPeriod = 100'000'000;  // [ns] between greetings without an answer

class FrameTransport final : public Receiver {
 public:
  FrameTransport(const Address& address, const std::string& operator_address, std::uint64_t commander)
      : Receiver(address.text, operator_address, commander),
        states_(address.flag("states", true)),
        channel_(address.kind == "udp" ? make_udp_client(address) : make_shm_client(address)) {}

  ~FrameTransport() override {
    if (layout_ != 0) channel_->send(std::span(out_).first(write_bye(commander_, out_)));
  }

  RobotDescription connect(const Contract& contract, double timeout_s) override;
  bool send(const LowCommand& command) noexcept override;

 private:
  bool wait_for_data(std::int64_t deadline_ns, int also_fd) noexcept override {
    return channel_->wait(deadline_ns, also_fd);
  }
  void drain_robot() noexcept override;
  void take_frame(std::span<const std::byte> data) noexcept;
  void take_state_frame(const Frame& frame) noexcept;
  void greet_again() noexcept;
  std::string silence(double timeout_s) const;

  bool states_;
  std::unique_ptr<ClientChannel> channel_;
  SequenceWindow window_;
  std::uint32_t layout_ = 0;  // 0: not connected
  RobotDescription robot_;
  bool described_ = false, other_version_ = false;
  bool answered_ = false;        // a second greeting: the next states may be those of a robot that restarted
  std::uint64_t again_from_ = 0;  // the first of them; 0: none came yet
  std::atomic<std::int64_t> heard_ns_{0};
  std::int64_t greeted_ns_ = 0;
  std::vector<int> places_;
  int heights_at_ = 0;  // where the contract reads a height scan among the measured values
  LowState scratch_;
  LowCommand ordered_;
  std::array<std::byte, kMaxFrame> out_{};
};

std::string FrameTransport::silence(double timeout_s) const {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g", timeout_s);
  auto line = "transport: no answer from " + identity() + " within " + seconds + " s";
  if (other_version_)
    return line + " in version " + std::to_string(kProtocolVersion) + " of the protocol, but one in another version";
  if (counters_.damaged > 0)
    return line + " that could be read (" + std::to_string(counters_.damaged.load()) + " damaged frames)";
  return line + "; is the robot, or the simulation, listening there?";
}

RobotDescription FrameTransport::connect(const Contract& contract, double timeout_s) {
  const auto end = now_ns() + static_cast<std::int64_t>(timeout_s * 1e9);
  described_ = false;
  layout_ = 0;
  for (auto now = now_ns(); !described_; now = now_ns()) {
    if (now >= end) throw UserError(silence(timeout_s));
    const auto next = std::min(end, now + kHelloPeriod);
    if (channel_->open()) channel_->send(std::span(out_).first(write_hello({commander_, states_}, out_)));
    while (!described_ && channel_->wait(next, -1)) {
      const auto size = channel_->receive(in_);
      if (size > 0) take_frame(std::span(in_).first(size));
    }
  }
  places_ = fit_robot(contract, robot_);
  heights_at_ = 0;
  for (const auto& term : contract.observations) {
    if (robot_.heights > 0 && term.signal == kHeightScan) heights_at_ = term.place;
  }
  layout_ = layout_of(robot_);
  window_.reset();
  fresh_ = false;
  newest_ = LowState();
  greeted_ns_ = now_ns();
  return robot_;
}

/// A robot that sends no states may have restarted or lost this end: greet it before the next command.
void FrameTransport::greet_again() noexcept {
  const auto now = now_ns();
  if (now - std::max(heard_ns_.load(std::memory_order_relaxed), greeted_ns_) < kHelloPeriod) return;
  greeted_ns_ = now;
  channel_->send(std::span(out_).first(write_hello({commander_, states_}, out_)));
}

void FrameTransport::drain_robot() noexcept {
  for (int taken = 0; taken < kMaxDrain; ++taken) {
    const auto size = channel_->receive(in_);
    if (size == 0) break;
    take_frame(std::span(in_).first(size));
  }
}

void FrameTransport::take_frame(std::span<const std::byte> data) noexcept {
  Frame frame;
  const auto opened = open_frame(data, frame);
  if (opened != Opened::kGood) {
    other_version_ = other_version_ || opened == Opened::kOtherVersion;
    return count(opened == Opened::kDamaged ? counters_.damaged : counters_.foreign);
  }
  if (frame.kind == Message::kOperator) return take_operator_frame(frame);
  if (frame.kind == Message::kDescribe) {
    if (layout_ != 0) {
      answered_ = true;
      return;
    }
    described_ = read_describe(frame, robot_);
    return described_ ? void() : count(counters_.damaged);
  }
  if (frame.kind != Message::kState) return count(counters_.foreign);
  if (layout_ != 0) take_state_frame(frame);
}

void FrameTransport::take_state_frame(const Frame& frame) noexcept {
  const auto now = now_ns();
  if (frame.layout != layout_) return count(counters_.foreign);
  if (!read_state(frame, scratch_) || scratch_.joints != static_cast<int>(robot_.joints.size()) ||
      scratch_.feet != robot_.feet || scratch_.measured_count != robot_.measured + robot_.heights) {
    return count(counters_.damaged);
  }
  auto verdict = window_.see(scratch_.sequence, counters_.lost);
  if (answered_ && verdict != SequenceWindow::Verdict::kNew) {
    // Its numbers count from the beginning again if they continue from there; a number that repeats is a frozen state.
    const bool goes_on = again_from_ != 0 && scratch_.sequence > again_from_;
    again_from_ = scratch_.sequence;
    if (goes_on) {
      window_.reset();
      verdict = window_.see(scratch_.sequence, counters_.lost);
    }
  }
  if (verdict == SequenceWindow::Verdict::kNew) {
    answered_ = false;
    again_from_ = 0;
  }
  if (verdict == SequenceWindow::Verdict::kDuplicate) return count(counters_.duplicate);
  if (verdict == SequenceWindow::Verdict::kOld) return count(counters_.old);
  count(counters_.states);
  heard_ns_.store(now, std::memory_order_relaxed);
  watch_.see(scratch_.commander, now);
  newest_ = scratch_;
  newest_.receive_time_ns = now;
  // A program of an earlier version sends a height scan first; the contract may read it later.
  std::rotate(newest_.measured, newest_.measured + robot_.heights, newest_.measured + robot_.heights + heights_at_);
  if (newest_.robot_time_ns == 0) newest_.robot_time_ns = now;  // It gives no time: that of arrival counts.
  for (int joint = 0; joint < scratch_.joints; ++joint) {
    const auto place = static_cast<std::size_t>(places_[static_cast<std::size_t>(joint)]);
    newest_.joint_pos[joint] = scratch_.joint_pos[place];
    newest_.joint_vel[joint] = scratch_.joint_vel[place];
    newest_.joint_effort[joint] = scratch_.joint_effort[place];
    newest_.temperature_c[joint] = scratch_.temperature_c[place];
    newest_.motor_fault[joint] = scratch_.motor_fault[place];
  }
  fresh_ = true;
}

bool FrameTransport::send(const LowCommand& command) noexcept {
  if (layout_ == 0 || command.joints != static_cast<int>(places_.size())) {
    count(counters_.send_failed);
    return false;
  }
  greet_again();
  ordered_ = command;
  for (int joint = 0; joint < command.joints; ++joint) {
    const auto place = static_cast<std::size_t>(places_[static_cast<std::size_t>(joint)]);
    ordered_.q[place] = command.q[joint];
    ordered_.dq[place] = command.dq[joint];
    ordered_.kp[place] = command.kp[joint];
    ordered_.kd[place] = command.kd[joint];
    ordered_.tau[place] = command.tau[joint];
  }
  ordered_.commander = commander_;
  const auto size = write_command(ordered_, layout_, out_);
  const bool sent = size > 0 && channel_->send(std::span(out_).first(size));
  count(sent ? counters_.commands : counters_.send_failed);
  if (sent) watch_.sent(now_ns());
  return sent;
}

}  // namespace

std::unique_ptr<Transport> make_frame_transport(const std::string& address, const std::string& operator_address,
                                                std::uint64_t commander) {
  return std::make_unique<FrameTransport>(parse_address(address, "transport"), operator_address, commander);
}

}  // namespace robot_rl

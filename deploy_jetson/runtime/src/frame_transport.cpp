// The policy's end of our own protocol, the same over UDP and shared memory.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "address.h"
#include "channel.h"
#include "operator_box.h"
#include "protocol.h"
#include "rt.h"
#include "sequence.h"
#include "transport_parts.h"

namespace robot_rl {
namespace {

constexpr std::int64_t kHelloPeriod = 100'000'000;  // [ns] between greetings that nobody answers
constexpr int kMaxDrain = 256;                      // frames taken at once, so that a flood holds up nobody

/// wait, take_state and take_operator belong to one thread, send to one at a time.
class FrameTransport final : public Transport {
 public:
  FrameTransport(const Address& address, const std::string& operator_address, std::uint64_t commander)
      : identity_(address.text),
        commander_(commander),
        states_(address.flag("states", true)),
        watch_(commander),
        channel_(address.kind == "udp" ? make_udp_client(address) : make_shm_client(address)) {
    if (names_socket(operator_address)) operator_.emplace(parse_address(operator_address, "operator"));
  }

  ~FrameTransport() override {
    if (layout_ != 0) channel_->send(std::span(out_).first(write_bye(commander_, out_)));
  }

  RobotDescription connect(const Contract& contract, double timeout_s) override;

  bool wait(std::int64_t deadline_ns) noexcept override {
    return fresh_ || channel_->wait(deadline_ns, operator_ ? operator_->fd() : -1);
  }

  bool take_state(LowState& state) noexcept override {
    drain();
    if (!fresh_) return false;
    state = newest_;
    fresh_ = false;
    return true;
  }

  bool take_operator(OperatorInput& input) noexcept override {
    drain();
    return box_.take(input);
  }

  bool send(const LowCommand& command) noexcept override;

  bool second_commander() const noexcept override { return watch_.second(); }
  TransportCounters counters() const noexcept override { return counters_.get(); }
  std::string identity() const override { return identity_; }

 private:
  void drain() noexcept;
  void take_frame(std::span<const std::byte> data, bool from_operator) noexcept;
  void take_state_frame(const Frame& frame) noexcept;
  std::string silence(double timeout_s) const;

  std::string identity_;
  std::uint64_t commander_;
  bool states_;
  CommanderWatch watch_;
  std::unique_ptr<ClientChannel> channel_;
  std::optional<OperatorSocket> operator_;
  AtomicCounters counters_;
  SequenceWindow window_;
  OperatorBox box_;
  std::uint32_t layout_ = 0;  // 0: not connected
  RobotDescription robot_;
  bool described_ = false, other_version_ = false, fresh_ = false;
  std::vector<int> places_;
  LowState scratch_, newest_;
  LowCommand ordered_;
  std::array<std::byte, kMaxFrame> in_{}, out_{};
};

std::string FrameTransport::silence(double timeout_s) const {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g", timeout_s);
  auto line = "transport: no answer from " + identity_ + " within " + seconds + " s";
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
      if (size > 0) take_frame(std::span(in_).first(size), false);
    }
  }
  places_ = fit_robot(contract, robot_);
  layout_ = layout_of(robot_);
  window_.reset();
  fresh_ = false;
  newest_ = LowState();
  return robot_;
}

void FrameTransport::drain() noexcept {
  for (int taken = 0; taken < kMaxDrain; ++taken) {
    const auto size = channel_->receive(in_);
    if (size == 0) break;
    take_frame(std::span(in_).first(size), false);
  }
  for (int taken = 0; operator_ && taken < kMaxDrain; ++taken) {
    const auto size = operator_->receive(in_);
    if (size == 0) break;
    take_frame(std::span(in_).first(size), true);
  }
}

void FrameTransport::take_frame(std::span<const std::byte> data, bool from_operator) noexcept {
  Frame frame;
  const auto opened = open_frame(data, frame);
  if (opened != Opened::kGood) {
    other_version_ = other_version_ || opened == Opened::kOtherVersion;
    return count(opened == Opened::kDamaged ? counters_.damaged : counters_.foreign);
  }
  OperatorInput input;
  std::uint64_t source;
  if (frame.kind == Message::kOperator) {
    if (!read_operator(frame, input, source)) return count(counters_.damaged);
    return box_.put(input, source, now_ns());
  }
  if (from_operator) return count(counters_.foreign);
  if (frame.kind == Message::kDescribe) {
    if (layout_ != 0) return;  // an answer to a second greeting
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
      scratch_.feet != robot_.feet || scratch_.heights != robot_.heights) {
    return count(counters_.damaged);
  }
  const auto verdict = window_.see(scratch_.sequence, counters_.lost);
  if (verdict == SequenceWindow::Verdict::kDuplicate) return count(counters_.duplicate);
  if (verdict == SequenceWindow::Verdict::kOld) return count(counters_.old);
  count(counters_.states);
  watch_.see(scratch_.commander, now);
  newest_ = scratch_;
  newest_.receive_time_ns = now;
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

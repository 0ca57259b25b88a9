#include "robot_end.h"

#include <algorithm>
#include <array>
#include <set>

#include "address.h"
#include "channel.h"
#include "protocol.h"
#include "rt.h"
#include "sequence.h"
#include "transport_parts.h"

namespace robot_rl {
namespace {

constexpr std::int64_t kForgetNs = 200'000'000;  // a commander that is silent for so long has gone

/// A connected client.
struct Client {
  bool used = false, states = false;
  std::uint64_t commander = 0;
  std::uint64_t other = 0;  // another commander since this one's last state
  SequenceWindow window;
};

class FrameRobotEnd final : public RobotEnd {
 public:
  FrameRobotEnd(const Address& address, const RobotDescription& robot)
      : identity_(address.text),
        robot_(robot),
        layout_(layout_of(robot)),
        channel_(address.kind == "udp" ? make_udp_server(address, "transport") : make_shm_server(address)) {}

  bool wait(std::int64_t deadline_ns) noexcept override { return channel_->wait(deadline_ns); }

  bool take_command(LowCommand& command) noexcept override {
    for (int peer;;) {
      const auto size = channel_->receive(in_, peer);
      if (size == 0) return false;
      Frame frame;
      const auto opened = open_frame(std::span(in_).first(size), frame);
      if (opened != Opened::kGood) {
        count(opened == Opened::kDamaged ? counters_.damaged : counters_.foreign);
        if (opened == Opened::kOtherVersion && peer < 0) answer_once();  // so that it detects the other version
      } else if (frame.kind == Message::kHello) {
        greet(frame);
      } else if (peer < 0) {
        count(counters_.foreign);
      } else if (frame.kind == Message::kBye) {
        channel_->forget(peer);
        clients_[static_cast<std::size_t>(peer)] = {};
      } else if (frame.kind != Message::kCommand || frame.layout != layout_) {
        count(counters_.foreign);
      } else if (accept(frame, clients_[static_cast<std::size_t>(peer)], command)) {
        return true;
      }
    }
  }

  int send_state(const LowState& state) noexcept override { return send_to_all(state, nullptr); }

  int send_corrupt(const LowState& state, std::uint32_t bit) noexcept override { return send_to_all(state, &bit); }

  int send_operator(const OperatorInput& input, std::uint64_t source) noexcept override {
    const auto size = write_operator(input, source, out_);
    int sent = 0;
    for (int peer = 0; peer < kMaxPeers; ++peer) {
      const auto& client = clients_[static_cast<std::size_t>(peer)];
      if (client.used && client.states && size > 0) sent += channel_->send(peer, std::span(out_).first(size));
    }
    return sent;
  }

  int clients() const noexcept override {
    return static_cast<int>(
        std::count_if(clients_.begin(), clients_.end(), [](const Client& client) { return client.used; }));
  }
  TransportCounters counters() const noexcept override { return counters_.get(); }
  std::string identity() const override { return identity_; }

 private:
  int send_to_all(const LowState& state, const std::uint32_t* corrupt_bit) noexcept {
    if (state.joints != static_cast<int>(robot_.joints.size()) || state.feet != robot_.feet ||
        state.measured_count != robot_.heights + robot_.measured) {
      count(counters_.send_failed);
      return 0;
    }
    scratch_ = state;
    if (state.sequence == 0) scratch_.sequence = sequence_ + 1;
    sequence_ = scratch_.sequence;
    int sent = 0;
    for (int peer = 0; peer < kMaxPeers; ++peer) {
      auto& client = clients_[static_cast<std::size_t>(peer)];
      if (!client.used || !client.states) continue;
      const std::uint64_t obeyed = now_ns() - commanded_ns_ < kForgetNs ? last_commander_ : 0;
      scratch_.commander = state.commander != 0 ? state.commander : client.other != 0 ? client.other : obeyed;
      client.other = 0;
      const auto size = write_state(scratch_, layout_, out_);
      if (corrupt_bit != nullptr && size > 0) out_[*corrupt_bit / 8 % size] ^= std::byte{1} << (*corrupt_bit % 8);
      const bool done = size > 0 && channel_->send(peer, std::span(out_).first(size));
      count(done ? counters_.states : counters_.send_failed);
      sent += done;
    }
    return sent;
  }

  void greet(const Frame& frame) noexcept {
    Hello hello;
    if (!read_hello(frame, hello)) return count(counters_.damaged);
    const int peer = channel_->adopt();
    if (peer < 0) return;
    auto& client = clients_[static_cast<std::size_t>(peer)];
    if (!client.used || client.commander != hello.commander) client = {};
    client.used = true;
    client.states = hello.states;
    client.commander = hello.commander;
    channel_->send(peer, std::span(out_).first(write_describe(robot_, out_)));
  }

  void answer_once() noexcept {
    const int peer = channel_->adopt();
    if (peer < 0) return;
    channel_->send(peer, std::span(out_).first(write_describe(robot_, out_)));
    channel_->forget(peer);
    clients_[static_cast<std::size_t>(peer)] = {};
  }

  bool accept(const Frame& frame, Client& client, LowCommand& command) noexcept {
    if (!read_command(frame, command) || command.joints != static_cast<int>(robot_.joints.size())) {
      count(counters_.damaged);
      return false;
    }
    // A watchdog is a peer of its own with its own sequence: each peer's numbers are checked separately.
    const auto verdict = client.window.see(command.sequence, counters_.lost);
    if (verdict != SequenceWindow::Verdict::kNew) {
      count(verdict == SequenceWindow::Verdict::kOld ? counters_.old : counters_.duplicate);
      return false;
    }
    count(counters_.commands);
    last_commander_ = command.commander;
    commanded_ns_ = now_ns();
    for (auto& each : clients_) {
      if (each.used && each.commander != command.commander) each.other = command.commander;
    }
    return true;
  }

  std::string identity_;
  RobotDescription robot_;
  std::uint32_t layout_;
  std::unique_ptr<ServerChannel> channel_;
  std::array<Client, kMaxPeers> clients_{};
  AtomicCounters counters_;
  std::uint64_t sequence_ = 0, last_commander_ = 0;
  std::int64_t commanded_ns_ = 0;
  LowState scratch_;
  std::array<std::byte, kMaxFrame> in_{}, out_{};
};

}  // namespace

std::unique_ptr<RobotEnd> make_robot_end(const std::string& address, const RobotDescription& robot) {
  const auto where = parse_address(address, "transport");
  if (layout_of(robot) == 0) {
    throw UserError("robot: it needs a name, 1 to " + std::to_string(kMaxJoints) + " joints with names of at most " +
                    std::to_string(kMaxName) + " bytes, at most " + std::to_string(kMaxFeet) + " feet and " +
                    std::to_string(kMaxMeasured) + " measured values");
  }
  if (std::set<std::string>(robot.joints.begin(), robot.joints.end()).size() != robot.joints.size()) {
    throw UserError("robot: a joint's name is given twice");
  }
  if (where.kind == "dds") return make_dds_robot_end(address, robot);
  return std::make_unique<FrameRobotEnd>(where, robot);
}

}  // namespace robot_rl

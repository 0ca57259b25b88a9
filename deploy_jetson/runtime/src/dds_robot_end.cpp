// A simulated Unitree robot on DDS.
#include <algorithm>
#include <array>
#include <optional>

#include "dds_codec.h"
#include "dds_node.h"
#include "robot_end.h"
#include "robot_rl.h"
#include "rt.h"
#include "transport_parts.h"

namespace robot_rl {
namespace {

constexpr std::int64_t kPatienceNs = 5'000'000;  // a sender of ours may be delayed between its two messages

std::vector<int> motors_of(const unitree::Robot& robot, const RobotDescription& description) {
  std::vector<int> motors;
  for (const auto& joint : description.joints) {
    const auto found =
        std::find_if(robot.motors.begin(), robot.motors.end(), [&](const auto& motor) { return joint == motor.joint; });
    if (found == robot.motors.end()) throw UserError("robot: '" + joint + "' is not a joint of " + robot.name);
    motors.push_back(static_cast<int>(found - robot.motors.begin()));
  }
  if (motors.size() != robot.motors.size()) {
    throw UserError("robot: " + std::to_string(motors.size()) + " joints, " + robot.name + " has " +
                    std::to_string(robot.motors.size()));
  }
  return motors;
}

class DdsRobotEnd final : public RobotEnd {
 public:
  DdsRobotEnd(const Address& address, const RobotDescription& description)
      : address_(address),
        robot_(unitree::robot_of(address.option("robot", description.robot))),
        node_(address, kRobotReceiver) {
    if (address.name != robot_.family) {
      throw UserError("transport: '" + std::string(robot_.name) + "' speaks dds:" + robot_.family +
                      ", not dds:" + address.name);
    }
    codec_ = make_codec(robot_, motors_of(robot_, description));
    codec_->set_battery(std::stoi(address.option("battery", "0")));
    codec_->set_mode_machine(static_cast<std::uint8_t>(std::stoi(address.option("mode_machine", "0"))));
    states_ = node_.make_writer(codec_->state_type(), "rt/lowstate");
    if (description.measured > 0) {
      measured_ = node_.make_writer(robot_rl_dds_Measured_desc, "rt/robot_rl/measured");
    }
    infos_ = node_.make_reader(robot_rl_dds_CommandInfo_desc, "rt/robot_rl/command", true);
    commands_ = node_.make_reader(codec_->command_type(), "rt/lowcmd", true);
  }

  bool wait(std::int64_t deadline_ns) noexcept override {
    if (waiting_) return true;
    if (!held_) return node_.bell().wait(deadline_ns, -1);
    node_.bell().wait(std::min(deadline_ns, held_until_ns_), -1);
    return true;
  }

  bool take_command(LowCommand& command) noexcept override {
    waiting_ = false;
    robot_rl_dds_CommandInfo info;
    while (take_sample(infos_, &info, nullptr)) infos_seen_[next_++ % infos_seen_.size()] = info;
    if (!held_ && !hold_next()) return false;
    if (!tell_apart(pending_) && now_ns() < held_until_ns_ && ours() > 0) return false;
    held_ = false;
    command = pending_;
    count(counters_.commands);
    waiting_ = true;  // there may be more
    return true;
  }

  int send_state(const LowState& state) noexcept override { return write(state, nullptr); }

  int send_corrupt(const LowState& state, std::uint32_t bit) noexcept override { return write(state, &bit); }

  /// By way of the remote control in the next states: forward, left and turn left in [-1, 1].
  int send_operator(const OperatorInput& input, std::uint64_t) noexcept override {
    if (!sticks_) sticks_.emplace();
    ++sticks_->count;
    sticks_->ly = input.size > 0 ? input.command[0] : 0.0f;
    sticks_->lx = input.size > 1 ? -input.command[1] : 0.0f;
    sticks_->rx = input.size > 2 ? -input.command[2] : 0.0f;
    sticks_->buttons = input.request == Request::kDamp     ? unitree::kButtonB
                       : input.request == Request::kStand  ? unitree::kButtonStart
                       : input.request == Request::kPolicy ? unitree::kButtonA
                                                           : std::uint16_t{0};
    return clients();
  }

  int clients() const noexcept override {
    dds_publication_matched_status_t matched;
    return dds_get_publication_matched_status(states_, &matched) == DDS_RETCODE_OK
               ? static_cast<int>(matched.current_count)
               : 0;
  }
  TransportCounters counters() const noexcept override { return counters_.get(); }
  std::string identity() const override { return address_.text; }

 private:
  int write(const LowState& state, const std::uint32_t* corrupt_bit) noexcept {
    if (state.joints != static_cast<int>(robot_.motors.size()) || state.feet != robot_.feet) {
      count(counters_.send_failed);
      return 0;
    }
    write_measured(state);
    sequence_ = state.sequence != 0 ? state.sequence : sequence_ + 1;
    codec_->write_state(state, sticks_ ? &*sticks_ : nullptr);
    if (corrupt_bit != nullptr) codec_->turn_bit(*corrupt_bit);
    sent_[codec_->tick() % sent_.size()] = {codec_->tick(), sequence_};
    const bool sent = dds_write(states_, codec_->state()) == DDS_RETCODE_OK;
    count(sent ? counters_.states : counters_.send_failed);
    return sent ? clients() : 0;
  }

  /// What is around the robot; it is not the robot that measures it, so it is a message of its own.
  void write_measured(const LowState& state) noexcept {
    if (measured_ == 0 || state.measured_count < 1 || state.measured_count > kMaxMeasured) return;
    sample_.count = static_cast<std::uint32_t>(state.measured_count);
    std::copy_n(state.measured, state.measured_count, sample_.values);
    dds_write(measured_, &sample_);
  }

  /// The next command that arrived, without its additional information.
  bool hold_next() noexcept {
    std::uint64_t writer;
    while (!held_ && take_sample(commands_, codec_->command(), &writer)) {
      held_ = codec_->read_command(pending_, true);
      if (!held_) count(counters_.damaged);
    }
    if (!held_) return false;
    pending_.commander = writer;
    pending_.sequence = ++received_;
    held_until_ns_ = now_ns() + kPatienceNs;
    return true;
  }

  /// Number of our own programs that command; they publish for each command its commander and the state it answers.
  int ours() const noexcept {
    dds_subscription_matched_status_t matched;
    return dds_get_subscription_matched_status(infos_, &matched) == DDS_RETCODE_OK
               ? static_cast<int>(matched.current_count)
               : 0;
  }

  /// Fill in the additional information of the pending command; false: it did not arrive yet.
  bool tell_apart(LowCommand& command) noexcept {
    // Both topics keep their order: the oldest match belongs to this command, and older entries belong to no later
    // command.
    for (std::size_t ahead = 0; ahead < infos_seen_.size(); ++ahead) {
      const auto seen = infos_seen_[(next_ + ahead) % infos_seen_.size()];
      if (seen.commander == 0 || seen.crc != codec_->command_crc()) continue;
      for (std::size_t done = 0; done <= ahead; ++done) {
        auto& older = infos_seen_[(next_ + done) % infos_seen_.size()];
        if (older.commander == seen.commander) older.commander = 0;
      }
      command.sequence = seen.command_sequence;
      command.commander = seen.commander;
      command.state_sequence = sequence_at(seen.state_robot_time_ns, seen.state_sequence);
      command.state_robot_time_ns = seen.state_robot_time_ns;
      command.state_age_ns = seen.state_age_ns;
      command.send_time_ns = seen.send_time_ns;
      command.phase = static_cast<Phase>(std::min<int>(seen.phase, static_cast<int>(Phase::kPolicy)));
      command.fault = static_cast<Fault>(std::min<int>(seen.fault, static_cast<int>(Fault::kCount) - 1));
      command.from_policy = seen.from_policy != 0;
      return true;
    }
    return false;
  }

  /// The sequence number of a sent state: DDS messages have none, and the other end counts for itself.
  std::uint64_t sequence_at(std::int64_t robot_time_ns, std::uint64_t otherwise) const noexcept {
    const auto tick = static_cast<std::uint32_t>(robot_time_ns / 1'000'000);
    const auto& sent = sent_[tick % sent_.size()];
    return sent.sequence != 0 && sent.tick == tick ? sent.sequence : otherwise;
  }

  struct Sent {
    std::uint32_t tick = 0;
    std::uint64_t sequence = 0;
  };

  Address address_;
  const unitree::Robot& robot_;
  DdsNode node_;
  std::unique_ptr<Codec> codec_;
  dds_entity_t states_ = 0, commands_ = 0, infos_ = 0, measured_ = 0;
  robot_rl_dds_Measured sample_{};
  AtomicCounters counters_;
  std::optional<unitree::Sticks> sticks_;
  std::array<robot_rl_dds_CommandInfo, 64> infos_seen_{};
  std::array<Sent, 1024> sent_{};  // by tick
  std::size_t next_ = 0;
  std::uint64_t received_ = 0, sequence_ = 0;
  bool waiting_ = false, held_ = false;
  LowCommand pending_;  // held until its commander is known, or for at most this time
  std::int64_t held_until_ns_ = 0;
};

}  // namespace

std::unique_ptr<RobotEnd> make_dds_robot_end(const std::string& address, const RobotDescription& robot) {
  return std::make_unique<DdsRobotEnd>(parse_address(address, "transport"), robot);
}

}  // namespace robot_rl

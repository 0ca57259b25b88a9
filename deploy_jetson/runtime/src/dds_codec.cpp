#include "dds_codec.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>

#include "unitree_go.h"
#include "unitree_hg.h"

namespace robot_rl {
namespace {

/// The messages have the memory layout of the robots' own programs, since the checksum covers that memory.
struct Go {
  using Command = unitree_go_msg_dds__LowCmd_;
  using State = unitree_go_msg_dds__LowState_;
  static_assert(sizeof(Command) == 812 && sizeof(State) == 1180);
  static const dds_topic_descriptor_t& command_type() { return unitree_go_msg_dds__LowCmd__desc; }
  static const dds_topic_descriptor_t& state_type() { return unitree_go_msg_dds__LowState__desc; }
};

struct Hg {
  using Command = unitree_hg_msg_dds__LowCmd_;
  using State = unitree_hg_msg_dds__LowState_;
  static_assert(sizeof(Command) == 1004 && sizeof(State) == 2092);
  static const dds_topic_descriptor_t& command_type() { return unitree_hg_msg_dds__LowCmd__desc; }
  static const dds_topic_descriptor_t& state_type() { return unitree_hg_msg_dds__LowState__desc; }
};

/// What differs between the families.
void head(Go::Command& command, std::uint8_t) noexcept {
  command.head[0] = 0xfe;
  command.head[1] = 0xef;
  command.level_flag = 0xff;
}
void head(Hg::Command& command, std::uint8_t mode_machine) noexcept {
  command.mode_pr = 0;  // ankles by pitch and roll
  command.mode_machine = mode_machine;
}

std::uint8_t mode_machine_of(const Go::State&) noexcept { return 0; }
std::uint8_t mode_machine_of(const Hg::State& state) noexcept { return state.mode_machine; }
void write_mode_machine(Go::State&, std::uint8_t) noexcept {}
void write_mode_machine(Hg::State& state, std::uint8_t mode_machine) noexcept { state.mode_machine = mode_machine; }

float temperature(const unitree_go_msg_dds__MotorState_& motor) noexcept {
  return static_cast<float>(static_cast<std::int8_t>(motor.temperature));
}
float temperature(const unitree_hg_msg_dds__MotorState_& motor) noexcept {
  return static_cast<float>(std::max(motor.temperature[0], motor.temperature[1]));  // case and winding
}
void set_temperature(unitree_go_msg_dds__MotorState_& motor, float value) noexcept {
  motor.temperature = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::clamp(value, -128.0f, 127.0f)));
}
void set_temperature(unitree_hg_msg_dds__MotorState_& motor, float value) noexcept {
  motor.temperature[0] = motor.temperature[1] = static_cast<std::int16_t>(std::clamp(value, -32768.0f, 32767.0f));
}

std::uint32_t motor_fault(const unitree_go_msg_dds__MotorState_&) noexcept { return 0; }  // it has no such field
std::uint32_t motor_fault(const unitree_hg_msg_dds__MotorState_& motor) noexcept { return motor.motorstate; }
void set_motor_fault(unitree_go_msg_dds__MotorState_&, std::uint32_t) noexcept {}
void set_motor_fault(unitree_hg_msg_dds__MotorState_& motor, std::uint32_t fault) noexcept { motor.motorstate = fault; }

/// Messages of the motor that were lost so far; the other family does not count them.
std::uint32_t lost(const unitree_go_msg_dds__MotorState_& motor) noexcept { return motor.lost; }
std::uint32_t lost(const unitree_hg_msg_dds__MotorState_&) noexcept { return 0; }

void lose(unitree_go_msg_dds__MotorState_& motor) noexcept { ++motor.lost; }
void lose(unitree_hg_msg_dds__MotorState_&) noexcept {}

int battery_of(const Go::State& state) noexcept { return state.bms_state.soc; }
int battery_of(const Hg::State&) noexcept { return 0; }
void write_battery(Go::State& state, int percent) noexcept { state.bms_state.soc = static_cast<std::uint8_t>(percent); }
void write_battery(Hg::State&, int) noexcept {}

/// Feet in the messages: front right, front left, rear right, rear left; in a contract: left before right.
constexpr int kFeet[4] = {1, 0, 3, 2};
constexpr std::int16_t kContact = 20;  // of the raw reading, which has no unit

void feet(const Go::State& message, LowState& state) noexcept {
  for (int foot = 0; foot < state.feet; ++foot)
    state.foot_contact[foot] = message.foot_force[kFeet[foot]] > kContact ? 1.0f : 0.0f;
}
void feet(const Hg::State&, LowState&) noexcept {}
void set_feet(Go::State& message, const LowState& state) noexcept {
  for (int foot = 0; foot < state.feet; ++foot)
    message.foot_force[kFeet[foot]] = state.foot_contact[foot] > 0.5f ? 10 * kContact : 0;
}
void set_feet(Hg::State&, const LowState&) noexcept {}

constexpr std::uint32_t kGone = 0xffffffffu;  // motor_fault of a motor that does not answer any more
constexpr std::uint32_t kOff = 0x40000000u, kLost = 0x20000000u;  // added to it: switched off, its messages get lost
constexpr int kLostStates = 25;               // in so many states in a row

template <class Message>
std::uint32_t checksum(const Message& message) noexcept {
  return unitree::crc(&message, sizeof(Message) - sizeof(std::uint32_t));
}

template <class Family>
class FamilyCodec final : public Codec {
 public:
  FamilyCodec(const unitree::Robot& robot, std::vector<int> motors) : robot_(robot), motors_(std::move(motors)) {}
  const dds_topic_descriptor_t& command_type() const override { return Family::command_type(); }
  const dds_topic_descriptor_t& state_type() const override { return Family::state_type(); }
  void* command() override { return &command_; }
  void* state() override { return &state_; }

  bool read_state(LowState& state, bool check_crc) noexcept override {
    if (check_crc && state_.crc != checksum(state_)) return false;
    mode_machine_.store(mode_machine_of(state_), std::memory_order_relaxed);
    battery_ = battery_of(state_);
    state.joints = static_cast<std::int32_t>(motors_.size());
    state.feet = robot_.feet;
    std::copy_n(state_.imu_state.quaternion, 4, state.quat_wxyz);
    std::copy_n(state_.imu_state.gyroscope, 3, state.gyro);
    std::copy_n(state_.imu_state.accelerometer, 3, state.acc);
    for (std::size_t joint = 0; joint < motors_.size(); ++joint) {
      const auto& motor = state_.motor_state[place(joint)];
      state.joint_pos[joint] = motor.q;
      state.joint_vel[joint] = motor.dq;
      state.joint_effort[joint] = motor.tau_est;
      state.temperature_c[joint] = temperature(motor);
      const bool answers = motor.mode != 0 || state.temperature_c[joint] != 0;
      reports_[joint] = reports_[joint] || answers;
      zero_[joint] = !answers && motor.q == 0 && motor.dq == 0 && motor.tau_est == 0;
      const bool loses = lost(motor) > lost_[joint];
      losing_[joint] = loses ? losing_[joint] + 1 : 0;
      lost_[joint] = lost(motor);
      was_on_[joint] = was_on_[joint] || motor.mode != 0;
      is_on_[joint] = motor.mode != 0;
      // A motor that answered, or was on, and is not any more has a fault.
      state.motor_fault[joint] = zero_[joint] && reports_[joint]
                                     ? kGone
                                     : motor_fault(motor) | (was_on_[joint] && !is_on_[joint] ? kOff : 0) |
                                           (losing_[joint] >= kLostStates ? kLost : 0);
    }
    feet(state_, state);
    return true;
  }

  void write_command(const LowCommand& command) noexcept override {
    head(command_, mode_machine());  // The message in `state_` may not have been checked, or is being written.
    for (std::size_t joint = 0; joint < motors_.size(); ++joint) {
      auto& motor = command_.motor_cmd[place(joint)];
      motor.mode = robot_.motors[static_cast<std::size_t>(motors_[joint])].mode;
      motor.q = command.q[joint];
      motor.dq = command.dq[joint];
      motor.tau = command.tau[joint];
      motor.kp = command.kp[joint];
      motor.kd = command.kd[joint];
    }
    command_.crc = checksum(command_);
  }

  void write_state(const LowState& state, const unitree::Sticks* sticks) noexcept override {
    std::copy_n(state.quat_wxyz, 4, state_.imu_state.quaternion);
    std::copy_n(state.gyro, 3, state_.imu_state.gyroscope);
    std::copy_n(state.acc, 3, state_.imu_state.accelerometer);
    state_.tick = static_cast<std::uint32_t>(state.robot_time_ns / 1'000'000);
    for (std::size_t joint = 0; joint < motors_.size(); ++joint) {
      auto& motor = state_.motor_state[place(joint)];
      if (std::isnan(state.temperature_c[joint])) {  // of a motor that is not there
        motor = {};
        continue;
      }
      const std::uint32_t fault = state.motor_fault[joint];
      motor.mode = (fault & kOff) == 0;
      if ((fault & kLost) != 0) lose(motor);
      motor.q = state.joint_pos[joint];
      motor.dq = state.joint_vel[joint];
      motor.tau_est = state.joint_effort[joint];
      set_temperature(motor, state.temperature_c[joint]);
      set_motor_fault(motor, fault & ~(kOff | kLost));
    }
    set_feet(state_, state);
    if (sticks != nullptr) unitree::write_remote(*sticks, state_.wireless_remote);
    state_.crc = checksum(state_);
  }

  void turn_bit(std::uint32_t bit) noexcept override {
    float& position = state_.motor_state[place(bit / 32 % motors_.size())].q;
    position = std::bit_cast<float>(std::bit_cast<std::uint32_t>(position) ^ (1u << (bit % 32)));
  }

  bool read_command(LowCommand& command, bool check_crc) noexcept override {
    if (check_crc && command_.crc != checksum(command_)) return false;
    command.joints = static_cast<std::int32_t>(motors_.size());
    for (std::size_t joint = 0; joint < motors_.size(); ++joint) {
      const auto& motor = command_.motor_cmd[place(joint)];
      const bool obeys = motor.mode == robot_.motors[static_cast<std::size_t>(motors_[joint])].mode;
      command.q[joint] = motor.q;
      command.dq[joint] = motor.dq;
      command.tau[joint] = obeys ? motor.tau : 0.0f;
      command.kp[joint] = obeys ? motor.kp : 0.0f;
      command.kd[joint] = obeys ? motor.kd : 0.0f;
    }
    return true;
  }

  std::uint8_t mode_machine() const noexcept override { return mode_machine_.load(std::memory_order_relaxed); }
  bool lacks(std::size_t joint) const noexcept override { return zero_[joint]; }
  bool is_on(std::size_t joint) const noexcept override { return is_on_[joint]; }
  int battery() const noexcept override { return battery_; }
  void set_mode_machine(std::uint8_t mode_machine) noexcept override { write_mode_machine(state_, mode_machine); }
  void set_battery(int percent) noexcept override { write_battery(state_, percent); }
  std::uint32_t tick() const noexcept override { return state_.tick; }
  std::span<const std::uint8_t> remote() const noexcept override { return state_.wireless_remote; }
  std::uint32_t command_crc() const noexcept override { return command_.crc; }

 private:
  std::size_t place(std::size_t joint) const noexcept {
    return static_cast<std::size_t>(robot_.motors[static_cast<std::size_t>(motors_[joint])].place);
  }

  const unitree::Robot& robot_;
  std::vector<int> motors_;
  typename Family::Command command_{};
  typename Family::State state_{};
  std::atomic<std::uint8_t> mode_machine_{0};  // read by the thread that sends
  std::array<bool, kMaxJoints> reports_{}, zero_{}, was_on_{}, is_on_{};
  std::array<std::uint32_t, kMaxJoints> lost_{};
  std::array<int, kMaxJoints> losing_{};
  int battery_ = 0;
};

}  // namespace

std::unique_ptr<Codec> make_codec(const unitree::Robot& robot, std::vector<int> motors) {
  if (std::string(robot.family) == "unitree_hg") return std::make_unique<FamilyCodec<Hg>>(robot, std::move(motors));
  return std::make_unique<FamilyCodec<Go>>(robot, std::move(motors));
}

}  // namespace robot_rl

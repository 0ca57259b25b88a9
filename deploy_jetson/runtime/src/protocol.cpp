#include "protocol.h"

#include <bit>
#include <cstring>
#include <vector>

namespace robot_rl {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written with their layout in memory");

constexpr std::uint32_t kMagic = 0x4c524252;  // "RBRL"
constexpr std::size_t kHeader = 16, kTail = 4;

/// Writes a frame; if something does not fit, `finish` returns 0.
class Packer {
 public:
  Packer(std::span<std::byte> out, Message kind, std::uint32_t layout) : out_(out) {
    put(kMagic);
    put(kProtocolVersion);
    put(kind);
    put(std::uint8_t{0});
    put(std::uint32_t{0});
    put(layout);
  }
  template <class T>
  void put(const T& value) {
    put_bytes(&value, sizeof(T));
  }
  template <class T>
  void put_array(const T* values, int count) {
    put_bytes(values, sizeof(T) * static_cast<std::size_t>(count));
  }
  void put_name(const std::string& name) {
    fail_ = fail_ || name.empty() || name.size() > kMaxName;
    put(static_cast<std::uint8_t>(name.size()));
    put_bytes(name.data(), name.size());
  }
  std::size_t finish() {
    if (fail_) return 0;
    const auto payload = static_cast<std::uint32_t>(at_ - kHeader);
    std::memcpy(out_.data() + 8, &payload, sizeof(payload));
    put(crc32(out_.first(at_)));
    return fail_ ? 0 : at_;
  }

 private:
  void put_bytes(const void* from, std::size_t size) {
    if (fail_ || out_.size() - at_ < size) {
      fail_ = true;
      return;
    }
    if (size > 0) std::memcpy(out_.data() + at_, from, size);
    at_ += size;
  }

  std::span<std::byte> out_;
  std::size_t at_ = 0;
  bool fail_ = false;
};

/// Reads a payload; `done`: everything was there and nothing is left.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> in) : in_(in) {}
  template <class T>
  T get() {
    T value{};
    get_bytes(&value, sizeof(T));
    if constexpr (std::is_same_v<T, std::int64_t>) fail_ = fail_ || !is_time(value);
    return value;
  }
  template <class T>
  void get_array(T* values, int count) {
    get_bytes(values, sizeof(T) * static_cast<std::size_t>(count));
  }
  std::string get_name() {
    const auto size = get<std::uint8_t>();
    std::string name(size, '\0');
    get_bytes(name.data(), size);
    fail_ = fail_ || size == 0 || size > kMaxName;
    return name;
  }
  bool failed() const { return fail_; }
  bool done() const { return !fail_ && at_ == in_.size(); }

 private:
  void get_bytes(void* to, std::size_t size) {
    if (fail_ || in_.size() - at_ < size) {
      fail_ = true;
      return;
    }
    if (size > 0) std::memcpy(to, in_.data() + at_, size);
    at_ += size;
  }

  std::span<const std::byte> in_;
  std::size_t at_ = 0;
  bool fail_ = false;
};

bool within(int value, int most) { return value >= 0 && value <= most; }

}  // namespace

Opened open_frame(std::span<const std::byte> data, Frame& frame) noexcept {
  if (data.size() < kHeader + kTail) return Opened::kDamaged;
  Unpacker header(data.first(kHeader));
  if (header.get<std::uint32_t>() != kMagic) return Opened::kDamaged;
  const auto version = header.get<std::uint16_t>();
  const auto kind = header.get<std::uint8_t>();
  const auto zero = header.get<std::uint8_t>();
  const auto payload = header.get<std::uint32_t>();
  frame.layout = header.get<std::uint32_t>();
  if (payload != data.size() - kHeader - kTail) return Opened::kDamaged;
  std::uint32_t crc;
  std::memcpy(&crc, data.data() + data.size() - kTail, kTail);
  if (crc != crc32(data.first(data.size() - kTail))) return Opened::kDamaged;
  if (version != kProtocolVersion) return Opened::kOtherVersion;
  if (zero != 0 || kind < 1 || kind > static_cast<std::uint8_t>(Message::kTeamMessage)) return Opened::kDamaged;
  frame.kind = static_cast<Message>(kind);
  frame.payload = data.subspan(kHeader, payload);
  return Opened::kGood;
}

std::size_t write_hello(const Hello& hello, std::span<std::byte> out) noexcept {
  Packer pack(out, Message::kHello, 0);
  pack.put(hello.commander);
  pack.put(static_cast<std::uint8_t>(hello.states));
  return pack.finish();
}

bool read_hello(const Frame& frame, Hello& hello) noexcept {
  Unpacker in(frame.payload);
  hello.commander = in.get<std::uint64_t>();
  const auto states = in.get<std::uint8_t>();
  hello.states = states == 1;
  return in.done() && states <= 1 && hello.commander != 0;
}

std::size_t write_bye(std::uint64_t commander, std::span<std::byte> out) noexcept {
  Packer pack(out, Message::kBye, 0);
  pack.put(commander);
  return pack.finish();
}

bool read_bye(const Frame& frame, std::uint64_t& commander) noexcept {
  Unpacker in(frame.payload);
  commander = in.get<std::uint64_t>();
  return in.done();
}

std::size_t write_team_message(const TeamMessage& message, std::uint32_t layout, std::span<std::byte> out) noexcept {
  if (!within(message.count, kMaxTeamValues)) return 0;
  Packer pack(out, Message::kTeamMessage, layout);
  pack.put(message.sender);
  pack.put(message.sequence);
  pack.put(static_cast<std::uint16_t>(message.count));
  pack.put_array(message.values, message.count);
  return pack.finish();
}

bool read_team_message(const Frame& frame, TeamMessage& message) noexcept {
  Unpacker in(frame.payload);
  message.sender = in.get<std::uint16_t>();
  message.sequence = in.get<std::uint64_t>();
  message.count = in.get<std::uint16_t>();
  if (in.failed() || message.count > kMaxTeamValues) return false;
  in.get_array(message.values, message.count);
  return in.done();
}

namespace {

std::size_t pack_describe(const RobotDescription& robot, std::uint32_t layout, std::span<std::byte> out) {
  if (robot.joints.empty() || robot.joints.size() > kMaxJoints || !within(robot.feet, kMaxFeet) ||
      !within(robot.heights, kMaxHeights) || !within(robot.measured, kMaxMeasured)) {
    return 0;
  }
  Packer pack(out, Message::kDescribe, layout);
  pack.put_name(robot.robot);
  pack.put(static_cast<std::uint16_t>(robot.joints.size()));
  pack.put(static_cast<std::uint16_t>(robot.feet));
  pack.put(static_cast<std::uint16_t>(robot.heights));
  for (const auto& joint : robot.joints) pack.put_name(joint);
  if (robot.measured > 0) pack.put(static_cast<std::uint16_t>(robot.measured));
  return pack.finish();
}

}  // namespace

std::uint32_t layout_of(const RobotDescription& robot) {
  std::vector<std::byte> out(kMaxFrame);
  const auto size = pack_describe(robot, 0, out);
  return size == 0 ? 0 : crc32(std::span(out).subspan(kHeader, size - kHeader - kTail));
}

std::size_t write_describe(const RobotDescription& robot, std::span<std::byte> out) noexcept {
  const auto size = pack_describe(robot, 0, out);
  if (size == 0) return 0;
  return pack_describe(robot, crc32(out.subspan(kHeader, size - kHeader - kTail)), out);
}

bool read_describe(const Frame& frame, RobotDescription& robot) {
  Unpacker in(frame.payload);
  robot.robot = in.get_name();
  const int joints = in.get<std::uint16_t>();
  robot.feet = in.get<std::uint16_t>();
  robot.heights = in.get<std::uint16_t>();
  robot.joints.clear();
  if (in.failed() || joints < 1 || joints > kMaxJoints || robot.feet > kMaxFeet || robot.heights > kMaxHeights)
    return false;
  for (int joint = 0; joint < joints; ++joint) robot.joints.push_back(in.get_name());
  robot.measured = 0;
  if (!in.failed() && !in.done()) {
    robot.measured = in.get<std::uint16_t>();
    if (robot.measured < 1 || robot.measured > kMaxMeasured) return false;
  }
  return in.done() && frame.layout == crc32(frame.payload);
}

std::size_t write_state(const LowState& state, std::uint32_t layout, std::span<std::byte> out) noexcept {
  if (!within(state.joints, kMaxJoints) || !within(state.feet, kMaxFeet) || !within(state.heights, kMaxHeights) ||
      !within(state.measured_count, kMaxMeasured)) {
    return 0;
  }
  Packer pack(out, Message::kState, layout);
  pack.put(state.sequence);
  pack.put(state.robot_time_ns);
  pack.put(state.commander);
  pack.put(static_cast<std::uint16_t>(state.joints));
  pack.put(static_cast<std::uint16_t>(state.feet));
  pack.put(static_cast<std::uint16_t>(state.heights));
  pack.put(static_cast<std::uint16_t>(state.measured_count));
  pack.put_array(state.quat_wxyz, 4);
  pack.put_array(state.gyro, 3);
  pack.put_array(state.acc, 3);
  pack.put_array(state.joint_pos, state.joints);
  pack.put_array(state.joint_vel, state.joints);
  pack.put_array(state.joint_effort, state.joints);
  pack.put_array(state.temperature_c, state.joints);
  pack.put_array(state.motor_fault, state.joints);
  pack.put_array(state.foot_contact, state.feet);
  pack.put_array(state.foot_force, state.feet);
  pack.put_array(state.height_scan, state.heights);
  pack.put_array(state.measured, state.measured_count);
  return pack.finish();
}

bool read_state(const Frame& frame, LowState& state) noexcept {
  Unpacker in(frame.payload);
  state.sequence = in.get<std::uint64_t>();
  state.robot_time_ns = in.get<std::int64_t>();
  state.commander = in.get<std::uint64_t>();
  const int joints = in.get<std::uint16_t>(), feet = in.get<std::uint16_t>(), heights = in.get<std::uint16_t>();
  const int measured = in.get<std::uint16_t>();
  if (in.failed() || joints > kMaxJoints || feet > kMaxFeet || heights > kMaxHeights || measured > kMaxMeasured)
    return false;
  state.joints = joints;
  state.feet = feet;
  state.heights = heights;
  state.measured_count = measured;
  in.get_array(state.quat_wxyz, 4);
  in.get_array(state.gyro, 3);
  in.get_array(state.acc, 3);
  in.get_array(state.joint_pos, joints);
  in.get_array(state.joint_vel, joints);
  in.get_array(state.joint_effort, joints);
  in.get_array(state.temperature_c, joints);
  in.get_array(state.motor_fault, joints);
  in.get_array(state.foot_contact, feet);
  in.get_array(state.foot_force, feet);
  in.get_array(state.height_scan, heights);
  in.get_array(state.measured, measured);
  return in.done();
}

std::size_t write_command(const LowCommand& command, std::uint32_t layout, std::span<std::byte> out) noexcept {
  if (!within(command.joints, kMaxJoints)) return 0;
  Packer pack(out, Message::kCommand, layout);
  pack.put(command.sequence);
  pack.put(command.commander);
  pack.put(command.state_sequence);
  pack.put(command.state_robot_time_ns);
  pack.put(command.state_age_ns);
  pack.put(command.send_time_ns);
  pack.put(static_cast<std::uint8_t>(command.joints));
  pack.put(command.phase);
  pack.put(command.fault);
  pack.put(static_cast<std::uint8_t>(command.from_policy));
  pack.put_array(command.q, command.joints);
  pack.put_array(command.dq, command.joints);
  pack.put_array(command.kp, command.joints);
  pack.put_array(command.kd, command.joints);
  pack.put_array(command.tau, command.joints);
  return pack.finish();
}

bool read_command(const Frame& frame, LowCommand& command) noexcept {
  Unpacker in(frame.payload);
  command.sequence = in.get<std::uint64_t>();
  command.commander = in.get<std::uint64_t>();
  command.state_sequence = in.get<std::uint64_t>();
  command.state_robot_time_ns = in.get<std::int64_t>();
  command.state_age_ns = in.get<std::int64_t>();
  command.send_time_ns = in.get<std::int64_t>();
  const int joints = in.get<std::uint8_t>();
  const auto phase = in.get<std::uint8_t>(), fault = in.get<std::uint8_t>(), from_policy = in.get<std::uint8_t>();
  if (in.failed() || joints > kMaxJoints || phase > static_cast<int>(Phase::kPolicy) ||
      fault >= static_cast<int>(Fault::kCount) || from_policy > 1 || command.commander == 0) {
    return false;
  }
  command.joints = joints;
  command.phase = static_cast<Phase>(phase);
  command.fault = static_cast<Fault>(fault);
  command.from_policy = from_policy == 1;
  in.get_array(command.q, joints);
  in.get_array(command.dq, joints);
  in.get_array(command.kp, joints);
  in.get_array(command.kd, joints);
  in.get_array(command.tau, joints);
  return in.done();
}

std::size_t write_operator(const OperatorInput& input, std::uint64_t source, std::span<std::byte> out) noexcept {
  if (!within(input.size, kMaxCommand)) return 0;
  Packer pack(out, Message::kOperator, 0);
  pack.put(source);
  pack.put(input.sequence);
  pack.put(input.request);
  pack.put(static_cast<std::uint8_t>(input.size));
  pack.put_array(input.command, input.size);
  return pack.finish();
}

bool read_operator(const Frame& frame, OperatorInput& input, std::uint64_t& source) noexcept {
  Unpacker in(frame.payload);
  source = in.get<std::uint64_t>();
  input.sequence = in.get<std::uint64_t>();
  const auto request = in.get<std::uint8_t>();
  const int size = in.get<std::uint8_t>();
  if (in.failed() || request > static_cast<int>(Request::kPolicy) || size > kMaxCommand) return false;
  input.request = static_cast<Request>(request);
  input.size = size;
  in.get_array(input.command, size);
  return in.done();
}

}  // namespace robot_rl

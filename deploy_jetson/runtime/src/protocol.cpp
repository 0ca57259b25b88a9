#include "protocol.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace robot_rl {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written with their layout in memory");

constexpr std::uint32_t kMagic = 0x4c524252;  // "RBRL"
constexpr std::size_t kHeader = 16, kTail = 4;

/// Goes through the bytes of a frame and reads or writes one field after the other; a field that does not fit, or is
/// out of range, makes it fail.
template <bool kReads>
class Walk {
 public:
  explicit Walk(std::span<std::conditional_t<kReads, const std::byte, std::byte>> bytes) : bytes_(bytes) {}
  template <class T>
  void number(T&& value) {
    move(&value, sizeof(value));
    if constexpr (kReads && std::is_same_v<T, std::int64_t&>) fail_ = fail_ || !is_time(value);
  }
  /// A number from `least` to `most` in 8 or 16 bits.
  void u8(auto& value, int least, int most) { within<std::uint8_t>(value, least, most); }
  void u16(auto& value, int least, int most) { within<std::uint16_t>(value, least, most); }
  /// Make a number that was read larger; it may not be above `most`.
  void add([[maybe_unused]] auto& value, [[maybe_unused]] int more, [[maybe_unused]] int most) {
    if constexpr (kReads) fail_ = fail_ || (value += more) > most;
  }
  template <class T>
  void array(T* values, int count) {
    move(values, sizeof(T) * static_cast<std::size_t>(count));
  }
  void name(auto& name) {
    auto size = std::min(name.size(), kMaxName + 1);
    u8(size, 1, kMaxName);
    resize(name, fail_ ? 0 : size);
    move(name.data(), size);
  }
  /// The container gets its size when it is read.
  void resize([[maybe_unused]] auto& container, [[maybe_unused]] std::size_t size) {
    if constexpr (kReads) container.resize(size);
  }
  /// Whether a number follows that is left out if it is 0.
  bool has(auto& value) {
    if constexpr (kReads) value = fail_ || at_ == bytes_.size() ? 0 : 1;
    return value != 0;
  }
  bool failed() const { return fail_; }
  bool done() const { return !fail_ && at_ == bytes_.size(); }
  std::size_t at() const { return at_; }

 private:
  template <class Wire, class T>
  void within(T& value, int least, int most) {
    Wire wire = 0;
    if constexpr (kReads) number(wire);
    const int found = kReads ? wire : static_cast<int>(value);
    fail_ = fail_ || found < least || found > most;
    if constexpr (kReads) value = fail_ ? value : static_cast<T>(wire);
    if constexpr (!kReads) number(static_cast<Wire>(found));
  }
  template <class T>
  void move(T* values, std::size_t size) {
    fail_ = fail_ || bytes_.size() - at_ < size;
    if (fail_ || size == 0) return;
    if constexpr (kReads) std::memcpy(values, bytes_.data() + at_, size);
    if constexpr (!kReads) std::memcpy(bytes_.data() + at_, values, size);
    at_ += size;
  }

  std::span<std::conditional_t<kReads, const std::byte, std::byte>> bytes_;
  std::size_t at_ = 0;
  bool fail_ = false;
};

// The fields of each message in order, for both directions.

void fields(auto& a, Is<std::uint64_t> auto& number) { a.number(number); }

void fields(auto& a, Is<Hello> auto& hello) {
  a.number(hello.commander);
  a.u8(hello.states, 0, 1);
}

void fields(auto& a, Is<TeamMessage> auto& message) {
  a.number(message.sender);
  a.number(message.sequence);
  a.u16(message.count, 0, kMaxTeamValues);
  a.array(message.values, message.count);
}

void fields(auto& a, Is<RobotDescription> auto& robot) {
  a.name(robot.robot);
  auto joints = std::min<std::size_t>(robot.joints.size(), kMaxJoints + 1);
  a.u16(joints, 1, kMaxJoints);
  a.u16(robot.feet, 0, kMaxFeet);
  a.u16(robot.heights, 0, kMaxMeasured);
  a.resize(robot.joints, a.failed() ? 0 : joints);
  for (auto& joint : robot.joints) a.name(joint);
  if (a.has(robot.measured)) a.u16(robot.measured, 1, kMaxMeasured);
}

void fields(auto& a, Is<LowState> auto& state) {
  a.number(state.sequence);
  a.number(state.robot_time_ns);
  a.number(state.commander);
  a.u16(state.joints, 0, kMaxJoints);
  a.u16(state.feet, 0, kMaxFeet);
  int heights = 0;  // the first measured values of a program of an earlier version
  a.u16(heights, 0, kMaxMeasured);
  a.u16(state.measured_count, 0, kMaxMeasured);
  a.add(state.measured_count, heights, kMaxMeasured);
  a.array(state.quat_wxyz, 4);
  a.array(state.gyro, 3);
  a.array(state.acc, 3);
  a.array(state.joint_pos, state.joints);
  a.array(state.joint_vel, state.joints);
  a.array(state.joint_effort, state.joints);
  a.array(state.temperature_c, state.joints);
  a.array(state.motor_fault, state.joints);
  a.array(state.foot_contact, state.feet);
  a.array(state.foot_force, state.feet);
  a.array(state.measured, state.measured_count);
}

void fields(auto& a, Is<LowCommand> auto& command) {
  a.number(command.sequence);
  a.number(command.commander);
  a.number(command.state_sequence);
  a.number(command.state_robot_time_ns);
  a.number(command.state_age_ns);
  a.number(command.send_time_ns);
  a.u8(command.joints, 0, kMaxJoints);
  a.u8(command.phase, 0, static_cast<int>(Phase::kPolicy));
  a.u8(command.fault, 0, static_cast<int>(Fault::kCount) - 1);
  a.u8(command.from_policy, 0, 1);
  for (auto* values : {command.q, command.dq, command.kp, command.kd, command.tau}) a.array(values, command.joints);
}

void fields(auto& a, Is<OperatorInput> auto& input, Is<std::uint64_t> auto& source) {
  a.number(source);
  a.number(input.sequence);
  a.u8(input.request, 0, static_cast<int>(Request::kPolicy));
  a.u8(input.size, 0, kMaxCommand);
  a.array(input.command, input.size);
}

template <class... T>
std::size_t write(std::span<std::byte> out, Message kind, std::uint32_t layout, const T&... values) noexcept {
  Walk<false> frame(out);
  frame.number(kMagic);
  frame.number(kProtocolVersion);
  frame.number(kind);
  frame.number(std::uint8_t{0});
  frame.number(std::uint32_t{0});  // bytes of the payload
  frame.number(layout);
  fields(frame, values...);
  if (frame.failed()) return 0;
  const auto payload = static_cast<std::uint32_t>(frame.at() - kHeader);
  std::memcpy(out.data() + 8, &payload, sizeof(payload));
  frame.number(crc32(out.first(frame.at())));
  return frame.failed() ? 0 : frame.at();
}

template <class... T>
bool read(const Frame& frame, T&... values) {
  Walk<true> in(frame.payload);
  fields(in, values...);
  return in.done();
}

}  // namespace

Opened open_frame(std::span<const std::byte> data, Frame& frame) noexcept {
  if (data.size() < kHeader + kTail) return Opened::kDamaged;
  Walk<true> header(data.first(kHeader));
  std::uint32_t magic, payload;
  std::uint16_t version;
  std::uint8_t kind, zero;
  header.number(magic);
  header.number(version);
  header.number(kind);
  header.number(zero);
  header.number(payload);
  header.number(frame.layout);
  if (magic != kMagic) return Opened::kDamaged;
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

std::uint32_t layout_of(const RobotDescription& robot) {
  std::vector<std::byte> out(kMaxFrame);
  const auto size = write(out, Message::kDescribe, 0, robot);
  return size == 0 ? 0 : crc32(std::span(out).subspan(kHeader, size - kHeader - kTail));
}

std::size_t write_hello(const Hello& hello, std::span<std::byte> out) noexcept {
  return write(out, Message::kHello, 0, hello);
}
std::size_t write_describe(const RobotDescription& robot, std::span<std::byte> out) noexcept {
  const auto size = write(out, Message::kDescribe, 0, robot);
  return size == 0 ? 0 : write(out, Message::kDescribe, crc32(out.subspan(kHeader, size - kHeader - kTail)), robot);
}
std::size_t write_state(const LowState& state, std::uint32_t layout, std::span<std::byte> out) noexcept {
  return write(out, Message::kState, layout, state);
}
std::size_t write_command(const LowCommand& command, std::uint32_t layout, std::span<std::byte> out) noexcept {
  return write(out, Message::kCommand, layout, command);
}
std::size_t write_operator(const OperatorInput& input, std::uint64_t source, std::span<std::byte> out) noexcept {
  return write(out, Message::kOperator, 0, input, source);
}
std::size_t write_bye(std::uint64_t commander, std::span<std::byte> out) noexcept {
  return write(out, Message::kBye, 0, commander);
}
std::size_t write_team_message(const TeamMessage& message, std::uint32_t layout, std::span<std::byte> out) noexcept {
  return write(out, Message::kTeamMessage, layout, message);
}

bool read_hello(const Frame& frame, Hello& hello) noexcept { return read(frame, hello) && hello.commander != 0; }
bool read_describe(const Frame& frame, RobotDescription& robot) {
  return read(frame, robot) && frame.layout == crc32(frame.payload);
}
bool read_state(const Frame& frame, LowState& state) noexcept { return read(frame, state); }
bool read_command(const Frame& frame, LowCommand& command) noexcept {
  return read(frame, command) && command.commander != 0;
}
bool read_operator(const Frame& frame, OperatorInput& input, std::uint64_t& source) noexcept {
  return read(frame, input, source);
}
bool read_bye(const Frame& frame, std::uint64_t& commander) noexcept { return read(frame, commander); }
bool read_team_message(const Frame& frame, TeamMessage& message) noexcept { return read(frame, message); }

}  // namespace robot_rl

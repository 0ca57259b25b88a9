// Wire format of our own messages, over UDP and in shared memory; only this file writes and reads them, for both ends.
//
// A message is one frame, little-endian: "RBRL", version (u16), kind (u8), 0 (u8), bytes of the payload (u32), layout
// (u32), payload, CRC-32 of all before it (u32). The layout is the CRC-32 of the robot's description: a state or a
// command of another layout has other joints and is never used. The messages of a robot that measures nothing around it
// are those of before there were measured values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "crc32.h"
#include "transport.h"
#include "types.h"

namespace robot_rl {

inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::size_t kMaxFrame = 10240;  // bytes; every message fits
inline constexpr std::size_t kMaxName = 63;      // bytes of a robot's or a joint's name
inline constexpr int kMaxTeamValues = 1024;      // values of all messages of a robot

enum class Message : std::uint8_t {
  kHello = 1,     // policy's side -> robot: who connects, and whether it wants states
  kDescribe = 2,  // robot -> policy's side: RobotDescription
  kState = 3,     // robot -> policy's side
  kCommand = 4,   // policy's side -> robot
  kOperator = 5,  // operator -> policy's side, at its operator address or by way of the robot
  kBye = 6,       // policy's side -> robot: forget me
  kTeamMessage = 7,  // policy's side of a robot -> those of the others of its team
};

/// A parsed frame; the payload points into the frame.
struct Frame {
  Message kind = Message::kHello;
  std::uint32_t layout = 0;
  std::span<const std::byte> payload;
};

enum class Opened : std::uint8_t { kGood, kDamaged, kOtherVersion };

struct Hello {
  std::uint64_t commander = 0;
  bool states = true;  // false: this one only sends commands, such as a watchdog
};

/// The messages of a robot of a team to the others: the values of all its messages, one after the other.
struct TeamMessage {
  std::uint16_t sender = 0;    // its place in the team
  std::uint64_t sequence = 0;  // one more with each, from a number that grows with each start of the program
  std::int32_t count = 0;
  float values[kMaxTeamValues] = {};
};

/// Parse a frame: magic, version, size and CRC. Never reads outside `data`.
Opened open_frame(std::span<const std::byte> data, Frame& frame) noexcept;

/// Each writes one frame into `out` and returns its size; 0 if counts or names are out of range or `out` is too small.
std::size_t write_hello(const Hello& hello, std::span<std::byte> out) noexcept;
std::size_t write_describe(const RobotDescription& robot, std::span<std::byte> out) noexcept;
std::size_t write_state(const LowState& state, std::uint32_t layout, std::span<std::byte> out) noexcept;
std::size_t write_command(const LowCommand& command, std::uint32_t layout, std::span<std::byte> out) noexcept;
/// `source`: random number of each operator's program, to distinguish its sequence numbers from another's.
std::size_t write_operator(const OperatorInput& input, std::uint64_t source, std::span<std::byte> out) noexcept;
std::size_t write_bye(std::uint64_t commander, std::span<std::byte> out) noexcept;
/// `layout`: of the team's messages.
std::size_t write_team_message(const TeamMessage& message, std::uint32_t layout, std::span<std::byte> out) noexcept;

/// Each reads the payload of a frame of its kind; false if counts, sizes or values are invalid, and the output
/// then must not be used. `receive_time_ns` is not changed. Only the used part of an array is written.
bool read_hello(const Frame& frame, Hello& hello) noexcept;
bool read_describe(const Frame& frame, RobotDescription& robot);
bool read_state(const Frame& frame, LowState& state) noexcept;
bool read_command(const Frame& frame, LowCommand& command) noexcept;
bool read_operator(const Frame& frame, OperatorInput& input, std::uint64_t& source) noexcept;
bool read_bye(const Frame& frame, std::uint64_t& commander) noexcept;
bool read_team_message(const Frame& frame, TeamMessage& message) noexcept;

/// The layout of a robot, 0 if the description cannot be sent.
std::uint32_t layout_of(const RobotDescription& robot);

}  // namespace robot_rl

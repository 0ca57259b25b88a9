// Facts of Unitree's robots on DDS: which motor is which joint, their checksum, and the remote control. No DDS in here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract.h"
#include "types.h"

namespace robot_rl::unitree {

/// A motor's place in the messages, by the name of its joint.
struct Motor {
  int place;
  const char* joint;
  std::uint8_t mode = 1;  // LowCmd's motor mode in which the motor obeys
};

/// What a robot says it is (LowState's mode_machine), and whether it has the motors of the table.
struct Build {
  std::uint8_t mode_machine;
  const char* what;
  bool fits;
};

struct Robot {
  const char* name;    // as in contracts
  const char* family;  // "unitree_go" or "unitree_hg"
  int places;          // motors in a message
  int feet;            // with a contact sensor
  std::span<const Motor> motors;
  std::span<const Build> builds;  // empty: its messages do not say
  /// For each place the joint's name, "" without a motor.
  std::vector<std::string> joint_names() const;
};

/// A robot by its name. Throws UserError that lists the known ones.
const Robot& robot_of(std::string_view name);

/// Throws ContractError if the robot says that it is another build than that of the table; `accepted`: a number that is
/// not known here, and taken all the same.
void check_build(const Robot& robot, std::uint8_t mode_machine, const std::string& accepted);

/// Throws UserError if the battery has less than this, in percent; a robot that does not say has 0.
void check_battery(int percent, const std::string& least);

/// CRC-32 of polynomial 0x04c11db7 over little-endian words, highest bit first, from 0xffffffff; no final inversion.
/// `bytes` is a multiple of 4.
std::uint32_t crc(const void* data, std::size_t bytes) noexcept;

inline constexpr std::size_t kRemoteBytes = 40;

/// The remote control's data in the 40 bytes of LowState.
class Gamepad {
 public:
  /// `dead_man`: the sticks count only while this button is held ("L1", "R2"); "": no button. `still_s`: see read(); 0:
  /// for ever. Throws UserError for an unknown button, or one with a meaning of its own.
  explicit Gamepad(const Contract& contract, const std::string& dead_man = "", double still_s = 3);
  /// A message of the operator at a time: sticks scaled to the contract's ranges of vx (forward), vy (left) and yaw
  /// (turn left), other components zero; B: damp, start: stand, A: policy. False if the receiver gets no signal of a
  /// remote control. A hand on a stick is hardly ever still to the last bit: after `still_s` of it the command is zero,
  /// and after twice that the receiver is taken to repeat a lost remote's last message.
  bool read(std::span<const std::uint8_t> remote, std::int64_t now_ns, OperatorInput& input) noexcept;

 private:
  std::vector<CommandSpec> command_;
  std::uint16_t dead_man_ = 0;  // its bit; 0: none
  std::int64_t still_ns_;
  std::uint64_t sequence_ = 0;
  std::array<std::uint8_t, kRemoteBytes> last_{};
  std::int64_t changed_ns_ = 0;
};

/// The opposite, for a simulated robot: sticks in [-1, 1] (left x, left y, right x, right y) and buttons.
struct Sticks {
  float lx = 0, ly = 0, rx = 0, ry = 0;
  std::uint16_t buttons = 0;
  std::uint8_t count = 0;  // of its messages, in a byte without a meaning: as a hand, it is never still
};
inline constexpr std::uint16_t kButtonStart = 1 << 2, kButtonA = 1 << 8, kButtonB = 1 << 9;
void write_remote(const Sticks& sticks, std::span<std::uint8_t> remote) noexcept;

}  // namespace robot_rl::unitree

// Conversion between our states and commands and Unitree's messages, one message of each kind at a time.
#pragma once

#include <dds/dds.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "types.h"
#include "unitree.h"

namespace robot_rl {

/// Buffers for one LowCmd and one LowState of a family. Joints are in the order of `motors`.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual const dds_topic_descriptor_t& command_type() const = 0;
  virtual const dds_topic_descriptor_t& state_type() const = 0;
  virtual void* command() = 0;
  virtual void* state() = 0;
  /// Read the message in `state()`; false: its checksum is wrong, and nothing of it is used, in commands neither.
  /// Sequence and times are not changed.
  virtual bool read_state(LowState& state, bool check_crc) noexcept = 0;
  virtual void write_command(const LowCommand& command) noexcept = 0;
  /// The two conversions of a simulated robot.
  virtual void write_state(const LowState& state, const unitree::Sticks* sticks) noexcept = 0;
  /// Flip a bit of the message in `state()`, in a joint's position, so that its checksum is wrong.
  virtual void turn_bit(std::uint32_t bit) noexcept = 0;
  virtual bool read_command(LowCommand& command, bool check_crc) noexcept = 0;
  /// What the robot said that it is in the last state that was read; 0 where its messages do not say.
  virtual std::uint8_t mode_machine() const noexcept = 0;
  /// Whether the last state that was read has nothing but zeros of a joint's motor.
  virtual bool lacks(std::size_t joint) const noexcept = 0;
  /// Whether that state says that the motor is on: its mode is not 0.
  virtual bool is_on(std::size_t joint) const noexcept = 0;
  /// Charge of the battery in percent by that state; 0: not reported.
  virtual int battery() const noexcept = 0;
  /// What a simulated robot says that it is, and of its battery.
  virtual void set_mode_machine(std::uint8_t mode_machine) noexcept = 0;
  virtual void set_battery(int percent) noexcept = 0;
  /// Of the message in `state()`.
  virtual std::uint32_t tick() const noexcept = 0;
  virtual std::span<const std::uint8_t> remote() const noexcept = 0;
  /// Of the message in `command()`.
  virtual std::uint32_t command_crc() const noexcept = 0;
};

/// `motors`: for each joint its index among the robot's motors (unitree::Robot::motors).
std::unique_ptr<Codec> make_codec(const unitree::Robot& robot, std::vector<int> motors);

}  // namespace robot_rl

// Finds an IMU whose orientation, gyroscope and accelerometer follow different conventions, and names the likely one.
#pragma once

#include <array>

#include "rotation.h"
#include "safety.h"
#include "types.h"

namespace robot_rl {

/// Compares, over the last seconds, the turns by the gyroscope with those of the orientation, and the vertical by the
/// accelerometer with that of the orientation: as they are, and as they would be by each convention that drivers
/// confuse. A finding needs both: they do not agree as they are, and they do by another convention. It stays until they
/// agree.
class ImuConvention {
 public:
  /// The next state does not continue the one before.
  void interrupt() { block_s_ = 0; }
  /// The next state, `dt` [s] after the one before; `at_rest`: the accelerometer shows the vertical. Returns
  /// kImuDisagrees with the convention's number as `joint`, and the two errors as value and limit.
  const Finding& see(const LowState& state, double dt, bool at_rest);
  /// The last result of see().
  const Finding& found() const { return found_; }

 private:
  static constexpr std::size_t kCount = 8;  // of conventions; the first one: as they are

  /// A mean error, over blocks.
  struct Error {
    double turn = 0, turned = 0;  // squared difference of turns, and squared turns [rad^2]
    double up = 0;                // squared difference of the verticals
  };

  void end_block(const LowState& state, bool at_rest);
  void judge();

  double block_s_ = 0;
  int states_ = 0;
  Vector gyro_{}, acc_{};                            // integral [rad], and mean [m/s^2], of the block
  std::array<float, 4> first_{};                     // the orientation when it began
  std::array<Error, kCount> error_{};
  double turns_ = 0, verticals_ = 0;                 // blocks in which the gyroscope turned, and with a vertical
  bool by_turn_ = false;  // the turns have shown it
  Finding found_;
};

/// A line about a convention, by its number in a finding.
const char* name_of_convention(int number);

}  // namespace robot_rl

#include "imu_convention.h"

#include <algorithm>
#include <cmath>

namespace robot_rl {

namespace {

constexpr double kBlockS = 0.1;      // turns are compared over so long, which a late orientation hardly changes
constexpr double kForget = 100;      // blocks: how far back is compared
constexpr double kTurn = 0.02;       // [rad]: of a block that turned
constexpr double kBlocks = 8;        // that turned, or had a vertical: enough to judge by
constexpr double kBadTurn = 0.15;    // of the squared turns
constexpr double kBadUp = 0.1;       // [rad], root mean square
constexpr double kBetter = 0.3;      // so much less is the error by the convention that is used
constexpr double kGravity = 9.81, kNear = 1.5;      // [m/s^2]: of a robot that is not accelerated

struct Convention {
  const char* line;
  bool xyzw = false, inverse = false;  // of the orientation
  double gyro = 1, acc = 1;            // signs
  int quarters = 0;                    // turns by 90 degrees about z, of gyroscope and accelerometer
};

constexpr std::array<Convention, 8> kConventions = {{
    {.line = "as they are"},
    {.line = "imu_quat_wxyz does not fit the other sensors, as if it were in the order x, y, z, w", .xyzw = true},
    {.line = "imu_quat_wxyz does not fit the other sensors, as if it were inverted, of the world in the base",
     .inverse = true},
    {.line = "imu_gyro does not fit the orientation, as if it had the opposite sign", .gyro = -1},
    {.line = "imu_acc does not fit the orientation, as if it were gravity, not the specific force, which points up",
     .acc = -1},
    {.line = "imu_gyro and imu_acc do not fit the orientation, as if mounted turned by 90 degrees about z",
     .quarters = 1},
    {.line = "imu_gyro and imu_acc do not fit the orientation, as if mounted turned by 180 degrees about z",
     .quarters = 2},
    {.line = "imu_gyro and imu_acc do not fit the orientation, as if mounted turned by -90 degrees about z",
     .quarters = 3},
}};

Quaternion read(const Convention& as, const std::array<float, 4>& q) {
  const Quaternion read = as.xyzw ? Quaternion{q[3], q[0], q[1], q[2]} : Quaternion{q[0], q[1], q[2], q[3]};
  return unit(as.inverse ? inverse(read) : read);
}

Vector turned(const Vector& v, int quarters) {
  Vector out = v;
  for (int i = 0; i < quarters; ++i) out = {-out[1], out[0], out[2]};
  return out;
}

double squared(const Vector& a, const Vector& b, double sign) {
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) sum += (sign * a[i] - b[i]) * (sign * a[i] - b[i]);
  return sum;
}

}  // namespace

const Finding& ImuConvention::see(const LowState& state, double dt, bool at_rest) {
  if (block_s_ == 0) {
    std::copy_n(state.quat_wxyz, 4, first_.begin());
    gyro_ = acc_ = Vector{};
    states_ = 0;
    block_s_ = 1e-9;  // the turn up to this state belongs to the block before
    return found_;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    gyro_[i] += static_cast<double>(state.gyro[i]) * dt;
    acc_[i] += static_cast<double>(state.acc[i]);
  }
  ++states_;
  block_s_ += dt;
  if (block_s_ >= kBlockS) end_block(state, at_rest);
  return found_;
}

void ImuConvention::end_block(const LowState& state, bool at_rest) {
  std::array<float, 4> last;
  std::copy_n(state.quat_wxyz, 4, last.begin());
  Vector up;
  for (std::size_t i = 0; i < 3; ++i) up[i] = acc_[i] / states_;
  const double force = length(up);
  const bool has_vertical = at_rest && std::abs(force - kGravity) < kNear;
  for (double& part : up) part /= force > 0 ? force : 1;
  const double keep = 1 - 1 / kForget;
  turns_ = keep * turns_ + (length(gyro_) > kTurn);
  verticals_ = keep * verticals_ + has_vertical;
  for (std::size_t k = 0; k < kCount; ++k) {
    const auto& as = kConventions[k];
    const Quaternion from = read(as, first_), to = read(as, last);
    const Vector turn = turn_between(from, to);
    Error& error = error_[k];
    error.turn = keep * error.turn + squared(turned(gyro_, as.quarters), turn, as.gyro);
    error.turned = keep * error.turned + squared(gyro_, Vector{}, 1) + squared(turn, Vector{}, 1);
    const double off = squared(turned(up, as.quarters), up_of(from), as.acc);
    error.up = keep * error.up + (has_vertical ? off : 0);
  }
  block_s_ = 0;
  see(state, 0, at_rest);  // the next block begins with this state
  judge();
}

void ImuConvention::judge() {
  const bool has_turns = turns_ > kBlocks, has_verticals = verticals_ > kBlocks;
  const auto turn = [&](const Error& error) { return has_turns ? error.turn / error.turned : 0; };
  const auto up = [&](const Error& error) { return has_verticals ? std::sqrt(error.up / verticals_) : 0; };
  const double turn_now = turn(error_[0]), up_now = up(error_[0]);
  const bool bad_turn = turn_now > kBadTurn, bad_up = up_now > kBadUp;
  if (!bad_turn && !bad_up) {
    if (has_turns || !by_turn_) found_ = Finding{};  // what turns have shown, only turns clear
    return;
  }
  found_ = Finding{};
  double least = 2;
  for (std::size_t k = 1; k < kCount; ++k) {
    const double by_turn = turn(error_[k]) / (bad_turn ? turn_now * kBetter : kBadTurn);
    const double by_up = up(error_[k]) / (bad_up ? up_now * kBetter : kBadUp);
    if (by_turn > 1 || by_up > 1 || by_turn + by_up >= least) continue;
    least = by_turn + by_up;
    found_ = {Fault::kImuDisagrees, static_cast<int>(k), turn_now, up_now};
    by_turn_ = bad_turn;
  }
}

const char* name_of_convention(int number) {
  const auto index = static_cast<std::size_t>(number);
  return index < kConventions.size() ? kConventions[index].line : "unknown";
}

}  // namespace robot_rl

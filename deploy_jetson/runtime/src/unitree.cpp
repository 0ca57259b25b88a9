#include "unitree.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "error.h"

namespace robot_rl::unitree {
namespace {

constexpr Motor kGo2[] = {
    {0, "FR_hip_joint"},   {1, "FR_thigh_joint"}, {2, "FR_calf_joint"},   {3, "FL_hip_joint"},
    {4, "FL_thigh_joint"}, {5, "FL_calf_joint"},  {6, "RR_hip_joint"},    {7, "RR_thigh_joint"},
    {8, "RR_calf_joint"},  {9, "RL_hip_joint"},   {10, "RL_thigh_joint"}, {11, "RL_calf_joint"},
};

constexpr Motor kG1[] = {
    {0, "left_hip_pitch_joint"},
    {1, "left_hip_roll_joint"},
    {2, "left_hip_yaw_joint"},
    {3, "left_knee_joint"},
    {4, "left_ankle_pitch_joint"},
    {5, "left_ankle_roll_joint"},
    {6, "right_hip_pitch_joint"},
    {7, "right_hip_roll_joint"},
    {8, "right_hip_yaw_joint"},
    {9, "right_knee_joint"},
    {10, "right_ankle_pitch_joint"},
    {11, "right_ankle_roll_joint"},
    {12, "waist_yaw_joint"},
    {13, "waist_roll_joint"},
    {14, "waist_pitch_joint"},
    {15, "left_shoulder_pitch_joint"},
    {16, "left_shoulder_roll_joint"},
    {17, "left_shoulder_yaw_joint"},
    {18, "left_elbow_joint"},
    {19, "left_wrist_roll_joint"},
    {20, "left_wrist_pitch_joint"},
    {21, "left_wrist_yaw_joint"},
    {22, "right_shoulder_pitch_joint"},
    {23, "right_shoulder_roll_joint"},
    {24, "right_shoulder_yaw_joint"},
    {25, "right_elbow_joint"},
    {26, "right_wrist_roll_joint"},
    {27, "right_wrist_pitch_joint"},
    {28, "right_wrist_yaw_joint"},
};

/// The smaller build has no waist but its turn, and one joint in each wrist; the places are the larger one's.
constexpr auto kG1Of23 = [] {
  std::array<Motor, 23> kept{};
  std::size_t at = 0;
  for (const Motor& motor : kG1) {
    const int place = motor.place;
    const bool has = place != 13 && place != 14 && place != 20 && place != 21 && place < 27;
    if (has) kept[at++] = motor;
  }
  return kept;
}();

constexpr std::uint8_t kStrong = 0x0a;  // mode of the H1's large motors

constexpr Motor kH1[] = {
    {0, "right_hip_roll_joint", kStrong},
    {1, "right_hip_pitch_joint", kStrong},
    {2, "right_knee_joint", kStrong},
    {3, "left_hip_roll_joint", kStrong},
    {4, "left_hip_pitch_joint", kStrong},
    {5, "left_knee_joint", kStrong},
    {6, "torso_joint", kStrong},
    {7, "left_hip_yaw_joint", kStrong},
    {8, "right_hip_yaw_joint", kStrong},
    {10, "left_ankle_joint"},
    {11, "right_ankle_joint"},
    {12, "right_shoulder_pitch_joint"},
    {13, "right_shoulder_roll_joint"},
    {14, "right_shoulder_yaw_joint"},
    {15, "right_elbow_joint"},
    {16, "left_shoulder_pitch_joint"},
    {17, "left_shoulder_roll_joint"},
    {18, "left_shoulder_yaw_joint"},
    {19, "left_elbow_joint"},
};

constexpr Build kG1Builds[] = {
    {0, "a simulated robot", true},
    {4, "a G1 of 23 joints", false},
    {5, "a G1 of 29 joints", true},
    {6, "a G1 with a locked waist", false},
};

constexpr Build kG1Of23Builds[] = {
    {0, "a simulated robot", true},
    {4, "a G1 of 23 joints", true},
    {5, "a G1 of 29 joints", false},
    {6, "a G1 with a locked waist", false},
};

constexpr Robot kRobots[] = {
    {"unitree_go2", "unitree_go", 20, 4, kGo2, {}},
    {"unitree_h1", "unitree_go", 20, 0, kH1, {}},
    {"unitree_g1", "unitree_hg", 35, 0, kG1, kG1Builds},
    {"unitree_g1_23dof", "unitree_hg", 35, 0, kG1Of23, kG1Of23Builds},
};

constexpr auto kCrc = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte << 24;
    for (int bit = 0; bit < 8; ++bit) rest = (rest << 1) ^ (rest >> 31 ? 0x04c11db7u : 0u);
    table[byte] = rest;
  }
  return table;
}();

constexpr std::uint8_t kHead[2] = {0x55, 0x51};  // first bytes of the remote's 40 from a simulated robot
constexpr float kDead = 0.05f;                   // of a stick's range

/// Buttons in the order of their bits.
constexpr std::array<std::string_view, 16> kButtonNames = {
    "R1", "L1", "start", "select", "R2", "L2", "F1", "F2", "A", "B", "X", "Y", "up", "right", "down", "left"};

/// Offset of each value in the 40 bytes.
constexpr std::size_t kButtons = 2, kLeftX = 4, kRightX = 8, kRightY = 12, kLeftY = 20;

float stick(std::span<const std::uint8_t> remote, std::size_t at) {
  float value;
  std::memcpy(&value, remote.data() + at, sizeof(value));
  if (!std::isfinite(value) || std::fabs(value) < kDead) return 0.0f;
  return std::clamp(value, -1.0f, 1.0f);
}

}  // namespace

std::vector<std::string> Robot::joint_names() const {
  std::vector<std::string> names(static_cast<std::size_t>(places));
  for (const auto& motor : motors) names[static_cast<std::size_t>(motor.place)] = motor.joint;
  return names;
}

const Robot& robot_of(std::string_view name) {
  for (const auto& robot : kRobots) {
    if (name == robot.name) return robot;
  }
  throw UserError("robot: '" + std::string(name) +
                  "' has no table of motors here; there are: " + joined(kRobots, &Robot::name));
}

void check_battery(int percent, const std::string& least) {
  const int limit = static_cast<int>(std::strtol(least.c_str(), nullptr, 10));
  if (percent <= 0 || percent >= limit) return;
  const std::string has = std::to_string(percent);
  throw UserError("robot: its battery has " + has + " %; charge it, or begin with less by battery=" + has +
                  " in the transport's address");
}

void check_build(const Robot& robot, std::uint8_t mode_machine, const std::string& accepted) {
  if (robot.builds.empty()) return;
  const auto number = std::to_string(mode_machine);
  const auto known = std::find_if(robot.builds.begin(), robot.builds.end(),
                                  [&](const auto& build) { return build.mode_machine == mode_machine; });
  const bool is_known = known != robot.builds.end();
  if (is_known ? known->fits : accepted == number) return;
  const std::string what = is_known ? known->what : "a build that is not known here";
  const std::string right = is_known ? "" : "; mode_machine=" + number + " in the transport's address accepts it";
  throw ContractError("robot: it says mode_machine " + number + ", " + what + "; the policy drives the " +
                      std::to_string(robot.motors.size()) + " joints of " + robot.name + right);
}

std::uint32_t crc(const void* data, std::size_t bytes) noexcept {
  const auto* at = static_cast<const std::uint8_t*>(data);
  std::uint32_t rest = 0xffffffffu;
  for (std::size_t word = 0; word + 4 <= bytes; word += 4) {
    for (int byte = 3; byte >= 0; --byte)
      rest = (rest << 8) ^ kCrc[(rest >> 24) ^ at[word + static_cast<std::size_t>(byte)]];
  }
  return rest;
}

Gamepad::Gamepad(const Contract& contract, const std::string& dead_man, double still_s)
    : command_(contract.command), still_ns_(static_cast<std::int64_t>((still_s > 0 ? still_s : 1e9) * 1e9)) {
  if (dead_man.empty()) return;
  const auto found = std::find(kButtonNames.begin(), kButtonNames.end(), dead_man);
  if (found == kButtonNames.end() || dead_man == "B" || dead_man == "start") {  // these two damp and stand
    std::string all;
    for (const auto name : kButtonNames) {
      if (name != "B" && name != "start") all += (all.empty() ? "" : ", ") + std::string(name);
    }
    throw UserError("transport: dead_man=" + dead_man + ": must be a button of the remote control: " + all);
  }
  dead_man_ = static_cast<std::uint16_t>(1u << (found - kButtonNames.begin()));
}

bool Gamepad::read(std::span<const std::uint8_t> remote, std::int64_t now_ns, OperatorInput& input) noexcept {
  if (remote.size() < kRemoteBytes) return false;
  if (changed_ns_ == 0 || !std::equal(last_.begin(), last_.end(), remote.begin())) changed_ns_ = now_ns;
  std::copy_n(remote.begin(), kRemoteBytes, last_.begin());
  const auto buttons = static_cast<std::uint16_t>(remote[kButtons] | remote[kButtons + 1] << 8);
  const bool heard = remote[0] != 0 || remote[1] != 0;  // the receiver writes a header before the received data
  if (!heard && (buttons & kButtonB) == 0) return false;
  const float forward = stick(remote, kLeftY), left = -stick(remote, kLeftX), turn = -stick(remote, kRightX);
  const bool is_pushed = forward != 0 || left != 0 || turn != 0;
  const std::int64_t still_ns = is_pushed ? now_ns - changed_ns_ : 0;
  if (still_ns > 2 * still_ns_ && (buttons & kButtonB) == 0) return false;
  const bool counts = still_ns <= still_ns_ && (buttons & dead_man_) == dead_man_;
  input.sequence = ++sequence_;
  input.size = static_cast<std::int32_t>(std::min<std::size_t>(command_.size(), kMaxCommand));
  for (int part = 0; part < input.size; ++part) {
    const auto& range = command_[static_cast<std::size_t>(part)];
    const float pushed = !counts               ? 0.0f
                         : range.name == "vx"  ? forward
                         : range.name == "vy"  ? left
                         : range.name == "yaw" ? turn
                                               : 0.0f;
    input.command[part] =
        static_cast<float>(pushed > 0 ? pushed * std::max(range.upper, 0.0) : pushed * std::max(-range.lower, 0.0));
  }
  input.request = buttons & kButtonB       ? Request::kDamp
                  : buttons & kButtonStart ? Request::kStand
                  : buttons & kButtonA     ? Request::kPolicy
                                           : Request::kNone;
  return true;
}

void write_remote(const Sticks& sticks, std::span<std::uint8_t> remote) noexcept {
  std::fill(remote.begin(), remote.end(), std::uint8_t{0});
  std::memcpy(remote.data(), kHead, sizeof(kHead));
  std::memcpy(remote.data() + kButtons, &sticks.buttons, sizeof(sticks.buttons));
  std::memcpy(remote.data() + kLeftX, &sticks.lx, sizeof(float));
  std::memcpy(remote.data() + kRightX, &sticks.rx, sizeof(float));
  std::memcpy(remote.data() + kRightY, &sticks.ry, sizeof(float));
  std::memcpy(remote.data() + kLeftY, &sticks.ly, sizeof(float));
  remote[kRemoteBytes - 1] = sticks.count;
}

}  // namespace robot_rl::unitree

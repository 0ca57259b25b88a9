#include "commander.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

namespace robot_rl {

namespace {

constexpr std::int64_t kCommanderGraceNs = 500'000'000;  // time for a robot to obey this program for the first time
constexpr double kRest = 1e-3;  // [rad/s or m/s]: a robot slower than this may stand still to the last bit

std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(std::llround(seconds * 1e9)); }

void require(bool good, const char* name, double value, const char* right) {
  if (!good) throw UserError(std::string(name) + "=" + std::to_string(value) + ": must be " + right);
}

void check_settings(const Settings& settings) {
  const auto within = [](double value, double low, double high) { return value >= low && value <= high; };
  require(within(settings.writer_period_s, 1e-5, 1), "writer_period_s", settings.writer_period_s, "from 1e-5 to 1");
  require(within(settings.stand_s, 0, 1e6), "stand_s", settings.stand_s, "from 0 to 1e6");
  require(within(settings.blend_s, 0, 1e6), "blend_s", settings.blend_s, "from 0 to 1e6");
  require(within(settings.stop_s, 0, 1e6), "stop_s", settings.stop_s, "from 0 to 1e6");
  require(within(settings.lost_stand_s, 0, 1e6), "lost_stand_s", settings.lost_stand_s, "from 0 to 1e6");
  require(within(settings.damping_scale, 0, 1e6), "damping_scale", settings.damping_scale, "from 0 to 1e6");
}

/// Faults that only a new start clears.
bool lasting(Fault fault) { return fault == Fault::kRefused || fault == Fault::kInternal; }

bool all_finite(const LowCommand& c) {
  bool finite = true;
  for (int i = 0; i < c.joints; ++i) {
    finite = finite && std::isfinite(c.q[i]) && std::isfinite(c.dq[i]) && std::isfinite(c.kp[i]) &&
             std::isfinite(c.kd[i]) && std::isfinite(c.tau[i]);
  }
  return finite;
}

float mix(double weight, double from, double to) { return static_cast<float>((1 - weight) * from + weight * to); }

}  // namespace

Commander::Commander(const Contract& contract, const Settings& settings, std::uint64_t commander)
    : contract_(&contract),
      settings_(settings),
      safety_(contract, settings.limits),
      sensors_(contract, settings.limits),
      commander_(commander),
      joints_(static_cast<int>(contract.joints.size())) {
  check_settings(settings);
  for (int i = 0; i < joints_; ++i) {
    const auto joint = static_cast<std::size_t>(i);
    const JointSpec& spec = contract.joints[joint];
    fallback_[joint] = static_cast<float>(contract.fallback_pose[joint]);
    if (spec.effort_limit == 0) continue;  // no motor: its gains stay 0
    kp_[joint] = static_cast<float>(spec.kp);
    kd_[joint] = static_cast<float>(spec.kd);
    damping_[joint] = static_cast<float>(spec.kd * settings.damping_scale);
  }
  zero_command();
}

void Commander::zero_command() {
  for (std::size_t i = 0; i < contract_->command.size(); ++i) {
    command_[i] = static_cast<float>(std::clamp(0.0, contract_->command[i].lower, contract_->command[i].upper));
  }
}

void Commander::enter(Phase phase, std::int64_t now_ns) {
  if (phase == Phase::kStand) {
    std::copy_n(state_.joint_pos, kMaxJoints, from_.begin());
    // From POLICY the efforts of its last command go on: at the measured positions the robot would sink.
    LowCommand last;
    if (phase_ == Phase::kPolicy) fill_policy(now_ns, last);
    for (int i = 0; phase_ == Phase::kPolicy && i < joints_; ++i) {
      const auto joint = static_cast<std::size_t>(i);
      const double effort = static_cast<double>(last.kp[i]) * (last.q[i] - state_.joint_pos[i]) + last.tau[i];
      if (kp_[joint] > 0) from_[joint] += static_cast<float>(effort / kp_[joint]);
    }
  }
  phase_ = phase;
  phase_time_ns_ = now_ns;
  if (phase == Phase::kDamping) zero_command();
  leave_ns_ = 0;
  if (phase == Phase::kPolicy) {
    ++epoch_;
    missed_ = 0;
    have_output_ = false;
    output_time_ns_ = now_ns;
    waiting_ns_ = 0;
  }
}

void Commander::latch(const Finding& finding, std::int64_t now_ns) {
  const bool heavier = lasting(finding.fault) && !lasting(finding_.fault);
  if (!error() || heavier || phase_ != Phase::kDamping) {
    if (finding_.fault != finding.fault) fault_time_ns_ = now_ns;
    finding_ = finding;
  }
  if (phase_ != Phase::kDamping) enter(Phase::kDamping, now_ns);
}

void Commander::ready(std::int64_t now_ns) {
  if (ready_) return;
  ready_ = true;
  ready_time_ns_ = change_time_ns_ = now_ns;
  // The time before this does not count: checks of the bundle may have taken it.
  state_.receive_time_ns = std::max(state_.receive_time_ns, now_ns);
  if (phase_ == Phase::kBoot) enter(Phase::kDamping, now_ns);
  if (present_) latch(present_, now_ns);  // of the first state
}

/// Bring the robot from POLICY to STAND: at once, or once a velocity command was zero for `stop_s`.
void Commander::leave(std::int64_t now_ns) {
  if (leave_ns_ != 0) return;
  const auto& command = contract_->command;
  const bool velocity = std::any_of(command.begin(), command.end(), [](const auto& part) { return part.name == "vx"; });
  leave_ns_ = now_ns + (velocity ? to_ns(settings_.stop_s) : 0);
  if (velocity) zero_command();
}

Finding Commander::check_operator(std::int64_t now_ns) const {
  const double silent = static_cast<double>(now_ns - operator_time_ns_) * 1e-9, limit = settings_.limits.operator_s;
  return limit > 0 && !(silent <= limit) ? Finding{Fault::kOperatorLost, -1, silent, limit} : Finding{};
}

bool Commander::changed(const LowState& state) const {
  if (state.sequence == state_.sequence) return false;
  const auto bytes = static_cast<std::size_t>(joints_) * sizeof(float);
  const bool same = std::memcmp(state.quat_wxyz, state_.quat_wxyz, sizeof state.quat_wxyz) == 0 &&
                    std::memcmp(state.gyro, state_.gyro, sizeof state.gyro) == 0 &&
                    std::memcmp(state.acc, state_.acc, sizeof state.acc) == 0 &&
                    std::memcmp(state.joint_pos, state_.joint_pos, bytes) == 0 &&
                    std::memcmp(state.joint_vel, state_.joint_vel, bytes) == 0;
  if (!same) return true;
  const auto at_rest = [](float speed) { return std::abs(static_cast<double>(speed)) < kRest; };
  return std::all_of(state.gyro, state.gyro + 3, at_rest) &&
         std::all_of(state.joint_vel, state.joint_vel + joints_, at_rest);
}

Finding Commander::check_commander(const LowState& state, std::int64_t now_ns) const {
  if (state.commander == 0 || state.commander == commander_) return {};
  // The robot reports the previous commander until it obeys our first command.
  if (!own_seen_ && now_ns - ready_time_ns_ <= kCommanderGraceNs) return {};
  return {Fault::kSecondCommander};
}

void Commander::on_state(const LowState& state, std::int64_t now_ns) {
  present_ = safety_.check_state(state);
  const bool usable = present_.fault != Fault::kNotFinite && present_.fault != Fault::kRefused;
  if (usable) {
    if (!have_state_ || changed(state)) {
      change_time_ns_ = now_ns;
      sensors_.see(state, phase_ == Phase::kPolicy);
    }
    // In lockstep no clock counts.
    const Finding& clock = clock_.see(state.robot_time_ns, state.receive_time_ns);
    // A misread orientation may look like a robot that fell.
    const bool misread = sensors_.found().fault == Fault::kImuDisagrees && sensors_.found().joint >= 0;
    if (!present_ || (misread && present_.fault == Fault::kTilt)) present_ = sensors_.found();
    if (!present_ && !settings_.steps_per_state) present_ = clock;
    state_ = state;
    state_.receive_time_ns = std::min(state.receive_time_ns, now_ns);
    have_state_ = true;
    if (waiting_ns_ == 0 && now_ns >= output_time_ns_ + to_ns(contract_->control_period_s)) waiting_ns_ = now_ns;
  }
  if (!ready_) return;
  own_seen_ = own_seen_ || (state.commander == commander_ && commander_ != 0);
  if (!present_) present_ = check_commander(state, now_ns);
  if (present_) latch(present_, now_ns);
}

Finding Commander::check_times(std::int64_t now_ns) const {
  if (const Finding finding = safety_.check_age(state_, now_ns, change_time_ns_)) return finding;
  if (phase_ != Phase::kStand && phase_ != Phase::kPolicy) return {};
  const SafetyLimits& limits = settings_.limits;
  if (const Finding lost = check_operator(now_ns)) {
    // By setting, the robot stops and stands before it is damped.
    const double more = settings_.lost_stand_s > 0 ? settings_.stop_s + settings_.stand_s + settings_.lost_stand_s : 0;
    if (!(lost.value <= limits.operator_s + more)) return lost;
  }
  // Check the deadlines here, too, in case nobody reports them any more; in lockstep time does not count.
  if (phase_ != Phase::kPolicy || settings_.steps_per_state || waiting_ns_ == 0) return {};
  const double periods = std::floor(static_cast<double>(now_ns - waiting_ns_) * 1e-9 / contract_->control_period_s);
  if (periods < limits.missed_deadlines) return {};
  return {Fault::kDeadline, -1, periods, static_cast<double>(limits.missed_deadlines)};
}

Finding Commander::wrong_now(std::int64_t now_ns) const {
  if (!have_state_) {
    const double waited = static_cast<double>(now_ns - ready_time_ns_) * 1e-9;
    return {Fault::kStateAge, -1, waited, settings_.limits.state_age_s};
  }
  if (present_) return present_;
  if (stall_) return stall_;
  return check_times(now_ns);
}

void Commander::damp(std::int64_t now_ns) {
  if (!error()) {
    latch({Fault::kOperatorStop}, now_ns);
    return;
  }
  if (lasting(finding_.fault)) return;
  const Finding before = sensors_.found();
  sensors_.acknowledge();
  if (before && !sensors_.found() && present_.fault == before.fault) present_ = Finding{};
  const Finding wrong = wrong_now(now_ns);
  finding_ = wrong ? wrong : Finding{Fault::kOperatorStop};
  fault_time_ns_ = now_ns;
}

void Commander::stand(std::int64_t now_ns) {
  if (const Finding wrong = wrong_now(now_ns)) return latch(wrong, now_ns);
  // The robot still obeys the previous commander: not a fault yet, but too early to stand up.
  if (state_.commander != 0 && state_.commander != commander_) return;
  finding_ = Finding{};
  enter(Phase::kStand, now_ns);
}

void Commander::on_operator(const OperatorInput& input, std::int64_t now_ns) {
  operator_time_ns_ = input.receive_time_ns > 0 ? std::min(input.receive_time_ns, now_ns) : now_ns;
  if (phase_ != Phase::kDamping && finding_.fault == Fault::kOperatorLost) finding_ = Finding{};  // It is back.
  const int most = static_cast<int>(contract_->command.size());
  if (input.size > most && most > 0) {
    if (ready_) latch({Fault::kCommandSize, -1, static_cast<double>(input.size), static_cast<double>(most)}, now_ns);
    return;
  }
  const int size = std::clamp<int>(input.size, 0, most);  // without a command in the contract none counts
  for (int i = 0; i < size; ++i) {
    if (std::isfinite(input.command[i])) continue;
    if (ready_) latch({Fault::kNotFinite, i, input.command[i], 0, Signal::kCommand}, now_ns);
    return;
  }
  for (int i = 0; i < size && leave_ns_ == 0; ++i) {
    const CommandSpec& range = contract_->command[static_cast<std::size_t>(i)];
    const double value = std::clamp<double>(input.command[i], range.lower, range.upper);
    command_[static_cast<std::size_t>(i)] = static_cast<float>(value);
  }
  if (!ready_) return;
  if (input.request == Request::kDamp) damp(now_ns);
  if (input.request == Request::kStand && phase_ == Phase::kDamping && !error()) stand(now_ns);
  if (input.request == Request::kStand && phase_ == Phase::kPolicy) leave(now_ns);
  if (input.request == Request::kPolicy && phase_ == Phase::kPolicy) leave_ns_ = 0;
  if (input.request == Request::kPolicy && phase_ == Phase::kStand &&
      now_ns - phase_time_ns_ >= to_ns(settings_.stand_s)) {
    enter(Phase::kPolicy, now_ns);
  }
}

void Commander::on_policy(const PolicyOutput& output, std::int64_t now_ns) {
  if (!ready_) return;
  missed_ = 0;
  const auto size = contract_->actions.size();
  if (!output.ok || output.actions != static_cast<std::int32_t>(size)) {
    latch({Fault::kInternal}, now_ns);
    return;
  }
  const bool follows = phase_ == Phase::kPolicy && have_output_ && !output.reset;
  const std::span<const float> previous(output_.action, follows ? size : 0);
  Finding finding = safety_.check_action({output.action, size}, previous);
  if (!finding) {
    finding = safety_.check_action({output.target, size}, {});
    finding.signal = Signal::kTarget;
  }
  if (finding) {
    latch(finding, now_ns);
    return;
  }
  stall_ = Finding{};
  output_ = output;
  output_.state_receive_time_ns = std::min(output.state_receive_time_ns, now_ns);
  if (phase_ != Phase::kPolicy || !(have_output_ || output.reset)) return;
  have_output_ = true;
  output_time_ns_ = now_ns;
  waiting_ns_ = 0;
}

void Commander::on_missed_deadline(std::int64_t now_ns) {
  if (phase_ != Phase::kPolicy) return;
  ++missed_;
  const int limit = settings_.limits.missed_deadlines;
  if (missed_ >= limit) latch({Fault::kDeadline, -1, static_cast<double>(missed_), static_cast<double>(limit)}, now_ns);
}

void Commander::on_fault(const Finding& finding, std::int64_t now_ns) {
  if (finding.fault == Fault::kStalled) stall_ = finding;
  if (finding) latch(finding, now_ns);
}

double Commander::progress(std::int64_t now_ns, double duration_s) const {
  const double passed = static_cast<double>(now_ns - phase_time_ns_) * 1e-9;
  if (passed >= duration_s) return 1;
  return std::max(passed / duration_s, 0.0);
}

void Commander::fill_damping(LowCommand& out) const {
  for (int i = 0; i < joints_; ++i) {
    out.q[i] = state_.joint_pos[i];
    out.dq[i] = out.kp[i] = out.tau[i] = 0;
    out.kd[i] = damping_[static_cast<std::size_t>(i)];
  }
}

void Commander::fill_stand(std::int64_t now_ns, LowCommand& out) const {
  const double done = progress(now_ns, settings_.stand_s);
  for (int i = 0; i < joints_; ++i) {
    const auto joint = static_cast<std::size_t>(i);
    out.q[i] = mix(done, from_[joint], fallback_[joint]);
    out.kp[i] = kp_[joint];
    out.kd[i] = kd_[joint];
  }
}

void Commander::fill_policy(std::int64_t now_ns, LowCommand& out) const {
  for (int i = 0; i < joints_; ++i) {
    const auto joint = static_cast<std::size_t>(i);
    out.q[i] = fallback_[joint];
    out.kp[i] = kp_[joint];
    out.kd[i] = kd_[joint];
  }
  if (!have_output_) return;
  const double blend = progress(now_ns, settings_.blend_s);
  for (std::size_t k = 0; k < contract_->actions.size(); ++k) {
    const ActionSpec& action = contract_->actions[k];
    const auto joint = static_cast<std::size_t>(action.joint_index);
    if (action.kind == ActionKind::kVelocity) {
      out.dq[joint] = mix(blend, 0, output_.target[k]);
    } else if (action.kind == ActionKind::kEffort) {  // the standing controller fades out as the effort fades in
      out.kp[joint] = mix(blend, kp_[joint], 0);
      out.kd[joint] = mix(blend, kd_[joint], 0);
      out.tau[joint] = mix(blend, 0, output_.target[k]);
    } else {
      out.q[joint] = mix(blend, fallback_[joint], output_.target[k]);
    }
  }
}

void Commander::stamp(std::int64_t now_ns, bool from_policy, LowCommand& out) {
  // A policy's command answers the state that the policy observed, any other command the newest one.
  const bool policys = output_.actions > 0 && (from_policy || (phase_ == Phase::kPolicy && have_output_));
  const std::int64_t received = policys ? output_.state_receive_time_ns : state_.receive_time_ns;
  out.sequence = ++sequence_;
  out.commander = commander_;
  out.state_sequence = policys ? output_.state_sequence : state_.sequence;
  out.state_robot_time_ns = policys ? output_.state_robot_time_ns : state_.robot_time_ns;
  out.state_age_ns = std::max<std::int64_t>(now_ns - received, 0);
  out.send_time_ns = now_ns;
  out.phase = phase_;
  out.fault = finding_.fault;
  out.from_policy = from_policy;
}

void Commander::command(std::int64_t now_ns, bool from_policy, LowCommand& out) {
  static_assert(std::is_trivially_copyable_v<LowCommand>);
  if (ready_) {
    if (const Finding finding = check_times(now_ns)) latch(finding, now_ns);
    const bool active = phase_ == Phase::kStand || phase_ == Phase::kPolicy;
    const Finding lost = active && !finding_ ? check_operator(now_ns) : Finding{};
    if (lost) {
      finding_ = lost;
      fault_time_ns_ = now_ns;
      if (phase_ == Phase::kPolicy) leave(now_ns);
    }
    if (phase_ == Phase::kPolicy && leave_ns_ != 0 && now_ns >= leave_ns_) enter(Phase::kStand, now_ns);
  }
  std::memset(static_cast<void*>(&out), 0, sizeof out);  // clear the padding, too: equal commands have equal bytes
  out.joints = joints_;
  if (phase_ == Phase::kStand) fill_stand(now_ns, out);
  if (phase_ == Phase::kPolicy) fill_policy(now_ns, out);
  if (phase_ == Phase::kStand || phase_ == Phase::kPolicy) {
    safety_.limit_effort(state_, out);
    sensors_.ask(out);
    if (!all_finite(out)) latch({Fault::kInternal}, now_ns);
  }
  if (phase_ == Phase::kBoot || phase_ == Phase::kDamping) fill_damping(out);
  stamp(now_ns, from_policy, out);
}

}  // namespace robot_rl

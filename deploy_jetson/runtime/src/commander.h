// The state machine, which builds every command. A pure function of its calls and their times: replaying a log of the
// calls reproduces every command bit for bit. One thread at a time calls it (loop.h holds the lock).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "contract.h"
#include "policy.h"
#include "robot_clock.h"
#include "safety.h"
#include "sensors.h"
#include "settings.h"
#include "types.h"

namespace robot_rl {

/// BOOT -> DAMPING -> STAND (ramp) -> POLICY (blend in) -> DAMPING (latched); any phase -> DAMPING.
class Commander {
 public:
  /// `commander` identifies this program to the robot. Throws UserError for an invalid setting, ContractError for
  /// a contract from which no command can be built.
  Commander(const Contract& contract, const Settings& settings, std::uint64_t commander);
  /// A new state arrived; it is checked at once, unless the phase is BOOT.
  void on_state(const LowState& state, std::int64_t now_ns);
  /// A message of the operator: heartbeat, command (components not given stay), request. A request that the phase does
  /// not allow is ignored. kStand in POLICY brings a velocity command to zero, then the robot to STAND, unless kPolicy
  /// is requested before. kDamp in DAMPING clears a latched fault if nothing is wrong any more; kRefused and kInternal
  /// stay, and kStalled stays until the policy has answered again.
  void on_operator(const OperatorInput& input, std::int64_t now_ns);
  /// A control step's output. After POLICY was entered, outputs are ignored until the first with `reset`.
  void on_policy(const PolicyOutput& output, std::int64_t now_ns);
  /// A control period passed without an output in time.
  void on_missed_deadline(std::int64_t now_ns);
  /// Something outside found a fault (second commander, watchdog, exception).
  void on_fault(const Finding& finding, std::int64_t now_ns);
  /// Leave BOOT: bundle, backend and robot passed their checks.
  void ready(std::int64_t now_ns);
  /// Check the ages and build the command to send now; `from_policy` marks one sent right after an inference.
  void command(std::int64_t now_ns, bool from_policy, LowCommand& out);

  Phase phase() const { return phase_; }
  Fault fault() const { return finding_.fault; }
  const Finding& finding() const { return finding_; }
  std::int64_t fault_time_ns() const { return fault_time_ns_; }
  /// Counts how often POLICY was entered. The policy is reset at the first step after each change; its thread reads
  /// this through loop.h.
  std::uint32_t policy_epoch() const { return epoch_; }
  /// The operator's command (command size), zero before the first one, kept within the contract's ranges.
  std::span<const float> operator_command() const { return {command_.data(), contract_->command.size()}; }

 private:
  void latch(const Finding& finding, std::int64_t now_ns);
  void enter(Phase phase, std::int64_t now_ns);
  void damp(std::int64_t now_ns);
  void leave(std::int64_t now_ns);
  Finding check_operator(std::int64_t now_ns) const;
  bool error() const { return finding_ && finding_.fault != Fault::kOperatorStop; }
  bool changed(const LowState& state) const;
  Finding check_commander(const LowState& state, std::int64_t now_ns) const;
  Finding check_times(std::int64_t now_ns) const;
  Finding wrong_now(std::int64_t now_ns) const;
  void stand(std::int64_t now_ns);
  double progress(std::int64_t now_ns, double duration_s) const;
  void zero_command();
  void stamp(std::int64_t now_ns, bool from_policy, LowCommand& out);
  void fill_damping(LowCommand& out) const;
  void fill_stand(std::int64_t now_ns, LowCommand& out) const;
  void fill_policy(std::int64_t now_ns, LowCommand& out) const;

  const Contract* contract_;
  Settings settings_;
  Safety safety_;
  Sensors sensors_;
  std::uint64_t commander_;
  std::uint64_t sequence_ = 0;
  Phase phase_ = Phase::kBoot;
  Finding finding_;
  std::uint32_t epoch_ = 0;
  bool ready_ = false, have_state_ = false, have_output_ = false, own_seen_ = false;
  int missed_ = 0, joints_ = 0;
  LowState state_;        // the newest one with only finite numbers
  Finding present_;       // result of the check of the newest state's content
  Finding stall_;         // this process was delayed, and the policy has not answered since
  PolicyOutput output_;   // the newest one; used if have_output_
  RobotClock clock_;
  std::int64_t leave_ns_ = 0;   // when POLICY is left for STAND; 0: it is not to be left
  std::int64_t ready_time_ns_ = 0, output_time_ns_ = 0;
  std::int64_t waiting_ns_ = 0;  // when the first state arrived that should have been answered by an output; 0: none
  std::int64_t phase_time_ns_ = 0, change_time_ns_ = 0, operator_time_ns_ = 0, fault_time_ns_ = 0;
  std::array<float, kMaxJoints> kp_{}, kd_{}, damping_{}, fallback_{};
  std::array<float, kMaxJoints> from_{};  // STAND's first targets: the joint positions, or with POLICY's last efforts
  std::array<float, kMaxCommand> command_{};
};

}  // namespace robot_rl

// The two real-time threads. Nothing here allocates, throws, or waits for anything except transport, clock and lock.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "loop.h"
#include "loop_counted.h"
#include "records.h"

namespace robot_rl {

namespace {

constexpr std::int64_t kWaitNs = 5'000'000;  // the longest that a stop or an operator waits for the policy's thread

}  // namespace

// ---- The policy's thread.

void Loop::policy_main() noexcept {
  while (!stop_.load(std::memory_order_acquire)) {
    if (!first_) wait_for_state();
    if (!take_new_state()) continue;  // a step waits for a state of its own time
    if (policy_ && due(fresh_, state_.receive_time_ns)) step();
    measure_state();
  }
}

/// Sleep until something arrives; if a control step is next, warm its network shortly before.
void Loop::wait_for_state() noexcept {
  const bool next = policy_ && options_.rehearse && due(fresh_ + 1, rehearsal_.expected_ns());
  const std::int64_t begin = next ? rehearsal_.begin_ns() : 0;
  if (begin > now_ns()) {
    if (transport_->wait(begin)) return;
    rehearse();
  }
  transport_->wait(now_ns() + kWaitNs);
}

/// Take over the network that was offered, if there is one: before the rehearsal of its first step, which warms it.
void Loop::take_offer() noexcept {
  if (taken_ || !offered_.load(std::memory_order_relaxed)) return;
  taken_ = offered_.exchange(nullptr, std::memory_order_acq_rel);
  if (taken_->backend) backend_->replace(*taken_->backend);
}

void Loop::rehearse() noexcept {
  take_offer();
  const std::int64_t begin = now_ns();
  busy_.store(true, std::memory_order_release);
  policy_->rehearse();
  const std::int64_t took = now_ns() - begin;
  rehearsal_.on_done(took);
  latencies_.rehearsal.add(took);
  const std::lock_guard lock(mutex_);
  busy_.store(false, std::memory_order_release);
}

bool Loop::take_new_state() noexcept {
  const bool got = first_ || transport_->take_state(state_);
  first_ = false;
  const std::lock_guard lock(mutex_);
  const bool moving = commander_.phase() != Phase::kDamping;
  take_operator(policy_ring_.get());
  if (got) take_state(state_, policy_ring_.get());
  // A fault or the operator's stop is answered at once, not at the writer's next tick.
  if (moving && ready_ && commander_.phase() == Phase::kDamping) send(false, policy_command_, policy_ring_.get());
  if (!got) return false;
  epoch_ = commander_.policy_epoch();
  const auto command = commander_.operator_command();
  std::copy(command.begin(), command.end(), step_command_.begin());
  ++fresh_;
  return true;
}

/// Whether a state received at this time, the nth since the last control step, starts a control step: by the clock it
/// is the one nearest to the deadline, so that states slightly faster than the control steps lose none of these.
bool Loop::due(int fresh, std::int64_t received_ns) const noexcept {
  if (settings_.steps_per_state) return fresh >= *settings_.steps_per_state;
  return received_ns >= due_ns_ - std::max(std::min(rehearsal_.interval_ns(), period_ns_), writer_ns_) / 2;
}

void Loop::step() noexcept {
  const std::int64_t due_ns = due_ns_;
  // A NaN would stay in the last action, the history and the memory for ever.
  const auto is_finite = [](float action) { return std::isfinite(action); };
  const bool sound = std::all_of(output_.action, output_.action + output_.actions, is_finite);
  const bool reset = counters_.steps == 0 || epoch_ != stepped_epoch_ || !sound;
  stepped_epoch_ = epoch_;
  fresh_ = 0;
  take_offer();
  busy_.store(true, std::memory_order_release);
  policy_->step(state_, {step_command_.data(), contract_->command.size()}, reset, output_);
  answer();
  if (taken_) taken_->answer(output_.step, output_.done_ns);
  taken_ = nullptr;
  ++counters_.steps;
  latencies_.wake.add(output_.begin_ns - state_.receive_time_ns);
  latencies_.observe.add(output_.observed_ns - output_.begin_ns);
  latencies_.inference.add(output_.done_ns - output_.observed_ns);
  if (!settings_.steps_per_state && due_ns > 0) latencies_.step_late.add(output_.begin_ns - due_ns);
}

/// Pass the step's output to the commander and send a command with it.
void Loop::answer() noexcept {
  EventRing* ring = policy_ring_.get();
  const std::lock_guard lock(mutex_);
  busy_.store(false, std::memory_order_release);
  const std::int64_t now = now_ns();
  commander_.on_policy(output_, now);
  if (ring) {
    if (taken_ && taken_->backend) push_swap(*ring, order_++, now, taken_->identity);
    push_policy(*ring, order_++, now, output_, {step_command_.data(), contract_->command.size()},
                policy_->observation());
  }
  const std::int64_t sent = send(true, policy_command_, ring);
  ++counters_.policy_commands;
  latencies_.state_to_command.add(sent - state_.receive_time_ns);
  // Deadlines follow the clock; a step that is late by more than half a period begins a new count, so that the next one
  // does not follow at once.
  const bool late = due_ns_ == 0 || output_.begin_ns > due_ns_ + period_ns_ / 2;
  due_ns_ = (late ? output_.begin_ns : due_ns_) + period_ns_;
  miss_ns_ = std::max(due_ns_, now) + period_ns_;  // periods that have passed are already counted
}

void Loop::measure_state() noexcept {
  const std::int64_t received = state_.receive_time_ns;
  if (received_ns_ != 0) latencies_.state_interval.add(received - received_ns_);
  received_ns_ = received;
  rehearsal_.on_state(received);
  const std::int64_t transit = received - state_.robot_time_ns;
  least_transit_ns_ = std::min(least_transit_ns_, transit);
  // Without a sign: no clock of a robot is so absurd that it may overflow.
  const auto more = static_cast<std::uint64_t>(transit) - static_cast<std::uint64_t>(least_transit_ns_);
  latencies_.state_jitter.add(static_cast<std::int64_t>(more));
}

// ---- The writer's thread.

void Loop::writer_main() noexcept {
  std::int64_t deadline = now_ns() + writer_ns_;
  while (!stop_.load(std::memory_order_acquire)) {
    sleep_until(deadline);
    tick(deadline);
    deadline += writer_ns_;
    const std::int64_t now = now_ns();
    if (deadline > now) continue;
    const std::int64_t skipped = (now - deadline) / writer_ns_ + 1;
    counters_.skipped_ticks += static_cast<std::uint64_t>(skipped);
    deadline += skipped * writer_ns_;
  }
}

void Loop::tick(std::int64_t deadline) noexcept {
  EventRing* ring = writer_ring_.get();
  const std::int64_t woke = now_ns();
  latencies_.writer_late.add(woke - deadline);
  const std::lock_guard lock(mutex_);
  if (!ready_) return;
  std::int64_t now = now_ns();
  // During a long inference, states and the operator's messages are still received.
  if (busy_.load(std::memory_order_acquire) && now - heard_ns_ > 2 * writer_ns_) {
    take_operator(ring);
    if (transport_->take_state(late_state_)) take_state(late_state_, ring);
    now = now_ns();
  }
  check_deadlines(now, ring);
  const std::int64_t sent = send(false, writer_command_, ring);
  ++counters_.writer_commands;
  latencies_.writer_send.add(sent - woke);
  latencies_.command_age.add(writer_command_.state_age_ns);
}

// ---- With the lock held.

void Loop::take_operator(EventRing* ring) noexcept {
  if (!transport_->take_operator(operator_)) return;
  const std::int64_t now = now_ns();
  commander_.on_operator(operator_, now);
  if (ring) push_operator(*ring, order_++, now, operator_);
  note(now);
}

void Loop::take_state(const LowState& state, EventRing* ring) noexcept {
  const std::int64_t now = now_ns();
  heard_ns_ = now;
  commander_.on_state(state, now);
  if (ring) push_state(*ring, order_++, now, state);
  if (!ready_) begin(now, ring);
  if (options_.by_itself) go_on_by_itself(now, ring);
  note(now);
}

/// The first state is there: leave BOOT.
void Loop::begin(std::int64_t now, EventRing* ring) noexcept {
  ready_ = true;
  commander_.ready(now);
  if (ring) push_call(*ring, order_++, now, EventKind::kReady);
  if (!policy_) raise({Fault::kRefused}, now, ring);
  if (watchdog_) watchdog_->arm();
}

/// Without an operator: stand up, then walk; a fault ends it.
void Loop::go_on_by_itself(std::int64_t now, EventRing* ring) noexcept {
  if (commander_.phase() == Phase::kDamping && commander_.fault() == Fault::kNone) {
    note(now);
    ask(Request::kStand, now, ring);
    note(now);
  }
  const std::size_t last = (shown_.changes + LoopStatus::kChanges - 1) % LoopStatus::kChanges;
  const std::int64_t entered = shown_.change[last].time_ns;
  if (commander_.phase() == Phase::kStand && static_cast<double>(now - entered) * 1e-9 >= settings_.stand_s) {
    ask(Request::kPolicy, now, ring);
  }
}

void Loop::ask(Request request, std::int64_t now, EventRing* ring) noexcept {
  operator_ = OperatorInput{};
  operator_.receive_time_ns = now;
  operator_.request = request;
  commander_.on_operator(operator_, now);
  if (ring) push_operator(*ring, order_++, now, operator_);
}

/// Faults found by the main thread, the watchdog and the transport.
void Loop::check_outside(std::int64_t now, EventRing* ring) noexcept {
  const int requested = requested_fault_.exchange(0, std::memory_order_acq_rel);
  if (requested != 0) raise({static_cast<Fault>(requested)}, now, ring);
  if (watchdog_ && watchdog_->takeovers() != takeovers_) {
    takeovers_ = watchdog_->takeovers();
    const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-9; };
    raise({Fault::kStalled, -1, seconds(watchdog_->silence_ns(now)), seconds(watchdog_->timeout_ns())}, now, ring);
    watchdog_->acknowledge(takeovers_);
  }
  const bool second = transport_->second_commander();
  if (second && (!second_seen_ || commander_.phase() != Phase::kDamping)) {
    raise({Fault::kSecondCommander}, now, ring);
  }
  second_seen_ = second;
}

/// Count control periods with a state but without an action.
void Loop::check_deadlines(std::int64_t now, EventRing* ring) noexcept {
  if (settings_.steps_per_state || miss_ns_ == 0) return;
  for (int i = 0; now >= miss_ns_ && i <= settings_.limits.missed_deadlines; ++i) {
    const std::int64_t was_due = miss_ns_ - period_ns_;
    miss_ns_ += period_ns_;
    if (heard_ns_ < was_due - writer_ns_ / 2) continue;  // the state is what is missing
    ++counters_.missed_deadlines;
    commander_.on_missed_deadline(now);
    if (ring) push_call(*ring, order_++, now, EventKind::kMissedDeadline);
  }
  if (now >= miss_ns_) miss_ns_ = now + period_ns_;
}

/// Build and send the current command; returns when it was passed to the system.
std::int64_t Loop::send(bool from_policy, LowCommand& command, EventRing* ring) noexcept {
  const std::int64_t now = now_ns();
  check_outside(now, ring);
  commander_.command(now, from_policy, command);
  const bool sent = transport_->send(command);
  const std::int64_t done = now_ns();
  if (watchdog_) watchdog_->beat(done, command.sequence);
  if (!sent) ++counters_.send_failed;
  if (ring) push_command(*ring, order_++, now, command);
  note(now);
  return done;
}

}  // namespace robot_rl

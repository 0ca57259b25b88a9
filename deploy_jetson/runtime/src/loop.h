// The control loop: a policy's thread that answers states, a writer's thread that keeps commands coming.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend.h"
#include "commander.h"
#include "events.h"
#include "handover.h"
#include "histogram.h"
#include "policy.h"
#include "rehearsal.h"
#include "rt.h"
#include "transport.h"
#include "watchdog.h"

namespace robot_rl {

struct LoopOptions {
  int fifo_writer = 80, fifo_policy = 70, cpu_writer = -1, cpu_policy = -1;  // 0 or -1: as the system has it
  bool by_itself = false;       // no operator: stand and walk without requests
  bool log = false;             // fill the rings
  bool rehearse = true;         // warm the network before a state is due
  std::uint64_t commander = 0;
};

/// Resources that a thread used between start and stop.
struct ThreadUse {
  std::uint64_t allocations = 0;          // of any library, those inside the network left out
  std::uint64_t network_allocations = 0;  // those inside the network's library
  long minor_faults = 0, major_faults = 0;
};

/// A change of phase or fault.
struct Change {
  std::int64_t time_ns = 0;
  Phase phase = Phase::kBoot;
  Finding finding;
};

/// State of the loop, for occasional readers.
struct LoopStatus {
  static constexpr std::size_t kChanges = 32;
  Phase phase = Phase::kBoot;
  Finding finding;
  std::uint64_t changes = 0;  // so far; the newest are kept, change n at n % kChanges
  std::array<Change, kChanges> change{};
};

struct LoopCounters {
  std::uint64_t steps = 0;             // of the policy
  std::uint64_t policy_commands = 0;   // sent right after an inference
  std::uint64_t writer_commands = 0;   // sent at a writer's tick
  std::uint64_t missed_deadlines = 0;  // control periods without an action in time
  std::uint64_t skipped_ticks = 0;     // writer's periods that passed before it woke
  std::uint64_t send_failed = 0;
};

/// Durations; each is filled by one thread.
struct Latencies {
  Histogram state_to_command;  // state received -> command with its action passed to the system
  Histogram wake;              // state received -> its control step begins
  Histogram observe;           // observation built
  Histogram inference;         // network
  Histogram rehearsal;         // network, before a state was due
  Histogram step_late;         // control step begins, after it was due
  Histogram state_interval;    // between two states received
  Histogram state_jitter;      // transit time of a state, above the least one seen in the run
  Histogram writer_late;       // writer wakes, after its deadline
  Histogram writer_send;       // building and sending one command
  Histogram command_age;       // age of the state that a writer's command answers
};

/// Their names in the report.
inline constexpr std::pair<const char*, Histogram Latencies::*> kLatencies[] = {
    {"state_to_command", &Latencies::state_to_command}, {"wake", &Latencies::wake},
    {"observe", &Latencies::observe},                   {"inference", &Latencies::inference},
    {"rehearsal", &Latencies::rehearsal},               {"step_late", &Latencies::step_late},
    {"state_interval", &Latencies::state_interval},     {"state_jitter", &Latencies::state_jitter},
    {"writer_late", &Latencies::writer_late},           {"writer_send", &Latencies::writer_send},
    {"command_age", &Latencies::command_age}};

class Loop {
 public:
  /// `backend` may be null: the bundle was refused, and the loop only damps. `watchdog` may be null. All arguments
  /// must outlive the loop.
  Loop(const Contract& contract, const Settings& settings, Transport& transport, Backend* backend, Watchdog* watchdog,
       const LoopOptions& options);
  ~Loop();
  /// For the logger.
  std::vector<EventRing*> rings();
  /// Start the threads, warm them up and wait for the robot's first state. Returns one line for each thing that was not
  /// permitted. Throws UserError.
  std::vector<std::string> prepare(double timeout_s);
  /// Begin: BOOT is left.
  void go() noexcept;
  LoopStatus status() const noexcept;
  /// Damp for a fault found outside the loop; any thread. Repeated until it is handled.
  void fail(Fault fault) noexcept { requested_fault_.store(static_cast<int>(fault), std::memory_order_release); }
  /// Hand over another network: the policy's thread takes it between two control steps, and answers in it. One at a
  /// time, when the one before has acted; it must outlive the threads, or the first step with the one after it.
  void offer(Handover& next) noexcept { offered_.store(&next, std::memory_order_release); }
  /// The network that the loop began with: its first step.
  const Handover& first() const noexcept { return own_; }
  /// Damp for a short time, then end the threads.
  void stop() noexcept;

  // After stop().
  const LoopCounters& counters() const { return counters_; }
  const Latencies& latencies() const { return latencies_; }
  const ThreadUse& policy_use() const { return use_[0]; }
  const ThreadUse& writer_use() const { return use_[1]; }

 private:
  class Counted;  // a backend that counts what its library allocates

  void run_thread(bool writer) noexcept;
  void set_up(bool writer);
  // The policy's thread.
  void policy_main() noexcept;
  bool take_new_state() noexcept;
  bool due(int fresh, std::int64_t received_ns) const noexcept;
  void wait_for_state() noexcept;
  void rehearse() noexcept;
  void take_offer() noexcept;
  void step() noexcept;
  void answer() noexcept;
  void measure_state() noexcept;
  // The writer's thread.
  void writer_main() noexcept;
  void tick(std::int64_t deadline) noexcept;
  // With the lock held, by either thread and its ring.
  void take_operator(EventRing* ring) noexcept;
  void take_state(const LowState& state, EventRing* ring) noexcept;
  void begin(std::int64_t now, EventRing* ring) noexcept;
  void go_on_by_itself(std::int64_t now, EventRing* ring) noexcept;
  void ask(Request request, std::int64_t now, EventRing* ring) noexcept;
  void check_outside(std::int64_t now, EventRing* ring) noexcept;
  void check_deadlines(std::int64_t now, EventRing* ring) noexcept;
  std::int64_t send(bool from_policy, LowCommand& command, EventRing* ring) noexcept;
  void raise(const Finding& finding, std::int64_t now, EventRing* ring) noexcept;
  void note(std::int64_t now) noexcept;

  const Contract* contract_;
  Settings settings_;
  Transport* transport_;
  Watchdog* watchdog_;
  LoopOptions options_;
  std::unique_ptr<Counted> backend_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<EventRing> policy_ring_, writer_ring_;
  std::vector<std::thread> threads_;
  std::array<std::string, 2> notes_, errors_;  // of the policy's and the writer's thread, until they are prepared
  std::latch prepared_{2};
  std::atomic<bool> go_{false}, stop_{false};
  std::atomic<int> requested_fault_{0};
  Handover own_;
  std::atomic<Handover*> offered_{nullptr};
  std::atomic<bool> busy_{false};  // the policy's thread infers: set by it, cleared by it under the lock
  const std::int64_t period_ns_, writer_ns_;

  // Under the lock.
  PiMutex mutex_;
  Commander commander_;
  LoopStatus shown_;
  OperatorInput operator_;
  std::array<float, kMaxCommand> step_command_{};
  std::uint64_t order_ = 0;
  std::uint32_t takeovers_ = 0;
  std::int64_t due_ns_ = 0;    // when the next control step is due; 0: at once
  std::int64_t miss_ns_ = 0;   // when that step has missed its deadline
  std::int64_t heard_ns_ = 0;  // when the newest state arrived
  bool ready_ = false, second_seen_ = false;
  Seqlock<LoopStatus> status_;

  // The policy's thread.
  LowState state_;
  PolicyOutput output_;
  Handover* taken_ = &own_;  // until its first step
  LowCommand policy_command_;
  std::uint32_t epoch_ = 0, stepped_epoch_ = 0;
  bool first_ = true;  // the state that prepare() took is still to be used
  int fresh_ = 0;      // states since the last control step
  Rehearsal rehearsal_;
  std::int64_t received_ns_ = 0, least_transit_ns_ = INT64_MAX;

  // The writer's thread.
  LowState late_state_;
  LowCommand writer_command_;

  LoopCounters counters_;
  Latencies latencies_;
  std::array<ThreadUse, 2> use_;
};

}  // namespace robot_rl

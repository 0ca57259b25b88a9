#include "loop.h"

#include <sys/prctl.h>

#include <algorithm>
#include <exception>

#include "error.h"
#include "loop_counted.h"
#include "logger.h"
#include "records.h"

namespace robot_rl {

namespace {

constexpr std::int64_t kStopNs = 250'000'000;  // of damping before the threads end

std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9 + 0.5); }

void add_line(std::string& lines, const std::string& line) { lines += (lines.empty() ? "" : "\n") + line; }

}  // namespace

Loop::Loop(const Contract& contract, const Settings& settings, Transport& transport, Backend* backend,
           Watchdog* watchdog, const LoopOptions& options)
    : contract_(&contract),
      settings_(settings),
      transport_(&transport),
      watchdog_(watchdog),
      options_(options),
      period_ns_(to_ns(contract.control_period_s)),
      writer_ns_(to_ns(settings.writer_period_s)),
      commander_(contract, settings, options.commander) {
  if (backend) {
    backend_ = std::make_unique<Counted>(*backend);
    policy_ = std::make_unique<Policy>(contract, *backend_, Exploration::of(settings));
  }
  if (options.log) {
    policy_ring_ = std::make_unique<EventRing>(kRingBytes);
    writer_ring_ = std::make_unique<EventRing>(kRingBytes);
  }
}

Loop::~Loop() { stop(); }

std::vector<EventRing*> Loop::rings() {
  if (!options_.log) return {};
  return {policy_ring_.get(), writer_ring_.get()};
}

std::vector<std::string> Loop::prepare(double timeout_s) {
  try {
    threads_.emplace_back([this] { run_thread(false); });
    threads_.emplace_back([this] { run_thread(true); });
  } catch (const std::exception& error) {
    prepared_.count_down(static_cast<std::ptrdiff_t>(2 - threads_.size()));
    throw UserError(std::string("a thread cannot be started: ") + error.what());
  }
  prepared_.wait();
  for (const auto& error : errors_) {
    if (!error.empty()) throw UserError(error);
  }
  const std::int64_t end = now_ns() + to_ns(timeout_s);
  while (!transport_->take_state(state_)) {
    if (now_ns() >= end) throw UserError(transport_->identity() + ": the robot answers, but sends no state");
    transport_->wait(std::min(end, now_ns() + 50'000'000));
  }
  std::vector<std::string> lines;
  for (const auto& notes : notes_) {
    for (std::size_t at = 0; at < notes.size();) {
      const std::size_t end_of_line = std::min(notes.find('\n', at), notes.size());
      const std::string line = notes.substr(at, end_of_line - at);
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
      at = end_of_line + 1;
    }
  }
  return lines;
}

void Loop::go() noexcept {
  go_.store(true, std::memory_order_release);
  go_.notify_all();
}

LoopStatus Loop::status() const noexcept {
  LoopStatus status;
  status_.load(status);
  return status;
}

void Loop::stop() noexcept {
  if (threads_.empty()) return;
  if (go_.load(std::memory_order_acquire)) {
    fail(Fault::kOperatorStop);
    sleep_until(now_ns() + kStopNs);
  }
  stop_.store(true, std::memory_order_release);
  go();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Loop::set_up(bool writer) {
  const int cpu = writer ? options_.cpu_writer : options_.cpu_policy;
  const int priority = writer ? options_.fifo_writer : options_.fifo_policy;
  std::string why;
  prctl(PR_SET_NAME, writer ? "robot-rl-write" : "robot-rl-policy", 0, 0, 0);
  if (cpu >= 0 && !pin_to_cpu(cpu, why)) add_line(notes_[writer], why);
  sharpen_timers();
  prefault_stack();
  // In this thread, so that its part of the heap is mapped.
  if (!writer && backend_) backend_->warm(50);
  if (priority > 0 && !set_fifo(priority, why)) add_line(notes_[writer], why);
}

void Loop::run_thread(bool writer) noexcept {
  try {
    set_up(writer);
  } catch (const std::exception& error) {
    errors_[writer] = error.what();
  }
  prepared_.count_down();
  go_.wait(false, std::memory_order_acquire);
  const PageFaults faults = page_faults();
  const std::uint64_t allocated = allocations(), network = writer || !backend_ ? 0 : backend_->allocated();
  if (writer) {
    writer_main();
  } else {
    policy_main();
  }
  const PageFaults after = page_faults();
  const std::uint64_t all = allocations() - allocated;
  ThreadUse& use = use_[writer];
  use.network_allocations = writer || !backend_ ? 0 : backend_->allocated() - network;
  use.allocations = all - use.network_allocations;
  use.minor_faults = after.minor - faults.minor;
  use.major_faults = after.major - faults.major;
}

void Loop::raise(const Finding& finding, std::int64_t now, EventRing* ring) noexcept {
  commander_.on_fault(finding, now);
  if (ring) push_fault(*ring, order_++, now, finding);
}

void Loop::note(std::int64_t now) noexcept {
  const Finding& finding = commander_.finding();
  const bool same = commander_.phase() == shown_.phase && finding.fault == shown_.finding.fault &&
                    finding.joint == shown_.finding.joint;
  if (same) return;
  shown_.phase = commander_.phase();
  shown_.finding = finding;
  shown_.change[shown_.changes++ % LoopStatus::kChanges] = {now, shown_.phase, finding};
  status_.store(shown_);
}

}  // namespace robot_rl

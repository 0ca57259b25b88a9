#include "paced.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "rehearsal.h"
#include "rt.h"

namespace robot_rl {

namespace {

constexpr int kWarmRuns = 20;

struct Buffers {
  explicit Buffers(const Contract& contract)
      : state(contract.state_size), action(contract.action_size), target(contract.action_size) {}
  std::vector<float> state, action, target;
};

/// The value below which this share of the sorted times is, by nearest rank [us].
double percentile_us(const std::vector<std::int64_t>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return static_cast<double>(sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1]) / 1000.0;
}

}  // namespace

PacedLatency measure_paced(Backend& backend, std::span<const float> observations, const Pace& pace) {
  const auto width = static_cast<std::size_t>(backend.contract().observation_size);
  const std::size_t rows = observations.size() / width;
  const auto period_ns = std::llround(pace.period_s * 1e9);
  PacedLatency result;
  Buffers buffers(backend.contract());
  std::vector<std::int64_t> took(pace.runs), late(pace.runs), rehearsed;
  rehearsed.reserve(pace.runs);
  if (!rows) return result;
  std::thread measuring([&] {
    std::string why;
    if (pace.fifo > 0 && !set_fifo(pace.fifo, why)) result.refused = why;
    if (pace.cpu >= 0 && !pin_to_cpu(pace.cpu, why)) result.refused += (result.refused.empty() ? "" : "; ") + why;
    prefault_stack();
    for (int i = 0; i < kWarmRuns; ++i) {  // the first allocations of a new thread cause page faults
      backend.run(observations.first(width), buffers.state, buffers.action, buffers.target, buffers.state);
    }
    std::uint64_t allocated = 0;
    Rehearsal rehearsal;
    const auto faults = page_faults();
    std::int64_t due = now_ns() + period_ns;
    for (int i = 0; i < pace.runs; ++i) {
      if (const auto at = pace.rehearse ? rehearsal.begin_ns() : 0; at > now_ns()) {
        sleep_until(at);
        const auto begin = now_ns();
        backend.rehearse();
        rehearsed.push_back(now_ns() - begin);
        rehearsal.on_done(rehearsed.back());
      }
      sleep_until(due);
      const auto counted = allocations();
      const auto begin = now_ns();
      const bool ran = backend.run(observations.subspan((i % rows) * width, width), buffers.state, buffers.action,
                                   buffers.target, buffers.state);
      const auto done = now_ns();
      allocated += allocations() - counted;
      took[i] = done - begin;
      late[i] = begin - due;
      result.failed += !ran;
      rehearsal.on_state(due);
      due = std::max<std::int64_t>(due + period_ns, done);  // a delay must not shift all later runs
    }
    const auto after = page_faults();
    result.page_faults = after.minor - faults.minor + after.major - faults.major;
    result.allocations_per_run = static_cast<double>(allocated) / pace.runs;
  });
  measuring.join();
  std::sort(took.begin(), took.end());
  std::sort(late.begin(), late.end());
  std::sort(rehearsed.begin(), rehearsed.end());
  result.runs = pace.runs;
  result.p50_us = percentile_us(took, 0.5);
  result.p99_us = percentile_us(took, 0.99);
  result.p999_us = percentile_us(took, 0.999);
  result.max_us = percentile_us(took, 1.0);
  result.rehearsal_p50_us = percentile_us(rehearsed, 0.5);
  result.late_p50_us = percentile_us(late, 0.5);
  result.late_p99_us = percentile_us(late, 0.99);
  return result;
}

}  // namespace robot_rl

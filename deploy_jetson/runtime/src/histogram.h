// A histogram of durations: buckets grow with the duration, so that every percentile is accurate to 1.6 %.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace robot_rl {

/// Durations in ns from 0 to 2^40 (18 min; longer ones count as 2^40), 32 buckets per octave. One thread adds, nothing
/// is allocated; read it after that thread has finished.
class Histogram {
 public:
  /// Add one duration [ns]; a negative one counts as 0.
  void add(std::int64_t ns) noexcept;
  std::uint64_t count() const { return count_; }
  std::int64_t min_ns() const { return count_ ? min_ : 0; }
  std::int64_t max_ns() const { return max_; }
  double mean_ns() const { return count_ ? sum_ / static_cast<double>(count_) : 0; }
  /// The duration below which this share of them is, `share` in [0, 1]: the middle of its bucket, within min and max; 0
  /// if there are none.
  double quantile_ns(double share) const;
  /// {"unit": "us", "count", "min", "mean", "max", "p50", "p90", "p99", "p99.9", "buckets": [[from, to, count], ...]},
  /// the buckets that are not empty, in rising order; from <= duration < to.
  std::string json() const;

 private:
  static constexpr int kSubBits = 5, kSub = 1 << kSubBits, kOctaves = 40;
  static int bucket_of(std::int64_t ns) noexcept;
  static std::int64_t lower_of(int bucket) noexcept;

  std::array<std::uint64_t, kSub*(kOctaves - kSubBits + 1)> counts_{};
  std::uint64_t count_ = 0;
  std::int64_t min_ = INT64_MAX, max_ = 0;
  double sum_ = 0;
};

}  // namespace robot_rl

#include "histogram.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

namespace robot_rl {

namespace {

std::string in_us(double ns) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, ns / 1000.0).ptr};
}

}  // namespace

// Durations below 2 * kSub have a bucket each; above, the leading bit gives the octave, the next kSubBits the bucket.
int Histogram::bucket_of(std::int64_t ns) noexcept {
  const auto value = static_cast<std::uint64_t>(std::clamp<std::int64_t>(ns, 0, (std::int64_t{1} << kOctaves) - 1));
  if (value < kSub) return static_cast<int>(value);
  const int shift = std::bit_width(value) - 1 - kSubBits;
  return (shift + 1) * kSub + static_cast<int>((value >> shift) - kSub);
}

std::int64_t Histogram::lower_of(int bucket) noexcept {
  if (bucket < kSub) return bucket;
  const int shift = bucket / kSub - 1;
  return static_cast<std::int64_t>(kSub + bucket % kSub) << shift;
}

void Histogram::add(std::int64_t ns) noexcept {
  ns = std::max<std::int64_t>(ns, 0);
  ++counts_[static_cast<std::size_t>(bucket_of(ns))];
  ++count_;
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
  sum_ += static_cast<double>(ns);
}

double Histogram::quantile_ns(double share) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(share * static_cast<double>(count_));
  const auto rank = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(wanted));
  std::uint64_t below = 0;
  int bucket = 0;
  while (below + counts_[static_cast<std::size_t>(bucket)] < rank) below += counts_[static_cast<std::size_t>(bucket++)];
  const double middle = 0.5 * static_cast<double>(lower_of(bucket) + lower_of(bucket + 1) - 1);
  return std::clamp(middle, static_cast<double>(min_), static_cast<double>(max_));
}

std::string Histogram::json() const {
  std::string text = "{\"unit\": \"us\", \"count\": " + std::to_string(count_);
  const auto put = [&text](const char* name, double ns) { text += std::string(", \"") + name + "\": " + in_us(ns); };
  put("min", static_cast<double>(min_ns()));
  put("mean", mean_ns());
  put("max", static_cast<double>(max_));
  put("p50", quantile_ns(0.5));
  put("p90", quantile_ns(0.9));
  put("p99", quantile_ns(0.99));
  put("p99.9", quantile_ns(0.999));
  text += ", \"buckets\": [";
  bool first = true;
  for (int bucket = 0; bucket < static_cast<int>(counts_.size()); ++bucket) {
    const auto count = counts_[static_cast<std::size_t>(bucket)];
    if (count == 0) continue;
    text += (first ? "[" : ", [") + in_us(static_cast<double>(lower_of(bucket))) + ", " +
            in_us(static_cast<double>(lower_of(bucket + 1))) + ", " + std::to_string(count) + "]";
    first = false;
  }
  return text + "]}";
}

}  // namespace robot_rl

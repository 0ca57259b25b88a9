// Losses in a numbered stream of messages.
#pragma once

#include <atomic>
#include <cstdint>

namespace robot_rl {

/// Distinguishes new messages from duplicates and from late ones; remembers the last 64 numbers.
class SequenceWindow {
 public:
  enum class Verdict : std::uint8_t { kNew, kDuplicate, kOld };

  /// `lost` counts the messages missing between the first and the newest; one that arrives late is subtracted again.
  Verdict see(std::uint64_t sequence, std::atomic<std::uint64_t>& lost) noexcept {
    if (!started_) {
      started_ = true;
      newest_ = sequence;
      seen_ = 1;
      return Verdict::kNew;
    }
    if (sequence > newest_) {
      const auto ahead = sequence - newest_;
      lost.fetch_add(ahead - 1, std::memory_order_relaxed);
      seen_ = ahead < 64 ? (seen_ << ahead) | 1 : 1;
      known_ = known_ + ahead < 64 ? known_ + ahead : 63;
      newest_ = sequence;
      return Verdict::kNew;
    }
    const auto behind = newest_ - sequence;
    if (behind > known_) return Verdict::kOld;  // before the first one, or too old to know
    if ((seen_ >> behind) & 1) return Verdict::kDuplicate;
    seen_ |= std::uint64_t{1} << behind;
    if (lost.load(std::memory_order_relaxed) > 0) lost.fetch_sub(1, std::memory_order_relaxed);
    return Verdict::kOld;
  }

  void reset() noexcept { *this = SequenceWindow(); }

 private:
  bool started_ = false;
  std::uint64_t newest_ = 0, seen_ = 0, known_ = 0;
};

}  // namespace robot_rl

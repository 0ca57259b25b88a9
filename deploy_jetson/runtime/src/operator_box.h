// The operator's messages between their arrival and the policy's thread.
#pragma once

#include <cstdint>

#include "types.h"

namespace robot_rl {

/// Keeps the newest message and every request until they are taken. One operator's program is heard at a time; another
/// one is heard once the first was silent for half a second, but a request to damp is obeyed from any of them. One that
/// was silent for so long may count from the beginning: it was started again.
class OperatorBox {
 public:
  /// Returns false for a message that is dropped.
  bool put(const OperatorInput& input, std::uint64_t source, std::int64_t now_ns) noexcept {
    const bool is_silent = now_ns - time_ns_ >= kHold;
    const bool same = heard_ && source == source_;
    const bool damp = input.request == Request::kDamp;
    if (same && !is_silent && input.sequence <= sequence_) return false;  // old or duplicate
    if (!same && heard_ && !is_silent) {
      const bool again = source == other_ && now_ns - other_ns_ < kHold && input.sequence <= other_sequence_;
      if (!damp || again) return false;
      other_ = source;
      other_sequence_ = input.sequence;
      other_ns_ = now_ns;
      ask(Request::kDamp);
      if (!waiting_) newest_.receive_time_ns = now_ns;  // the first one's command stays valid
      waiting_ = true;
      return true;
    }
    heard_ = true;
    source_ = source;
    sequence_ = input.sequence;
    time_ns_ = now_ns;
    newest_ = input;
    newest_.receive_time_ns = now_ns;
    ask(input.request);
    waiting_ = true;
    return true;
  }

  bool take(OperatorInput& input) noexcept {
    if (!waiting_) return false;
    input = newest_;
    input.request = request_;
    request_ = Request::kNone;
    waiting_ = false;
    return true;
  }

 private:
  static constexpr std::int64_t kHold = 500'000'000;  // [ns]

  /// Damping has priority over all pending requests; otherwise the newest request is used.
  void ask(Request request) noexcept {
    if (request_ == Request::kDamp || request == Request::kNone) return;
    request_ = request;
  }

  bool heard_ = false, waiting_ = false;
  std::uint64_t source_ = 0, sequence_ = 0, other_ = 0, other_sequence_ = 0;
  std::int64_t time_ns_ = 0, other_ns_ = 0;
  OperatorInput newest_;
  Request request_ = Request::kNone;
};

}  // namespace robot_rl

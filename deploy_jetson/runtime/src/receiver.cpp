#include "receiver.h"

#include <utility>

#include "address.h"
#include "rt.h"

namespace robot_rl {

Receiver::Receiver(std::string identity, const std::string& operator_address, std::uint64_t commander)
    : commander_(commander), watch_(commander), identity_(std::move(identity)) {
  if (names_socket(operator_address)) operator_.emplace(parse_address(operator_address, "operator"), "operator");
}

bool Receiver::take_state(LowState& state) noexcept {
  drain();
  if (!fresh_) return false;
  state = newest_;
  fresh_ = false;
  return true;
}

bool Receiver::second_commander() const noexcept { return watch_.second(now_ns()); }

bool Receiver::take_operator(OperatorInput& input) noexcept {
  drain();
  return box_.take(input);
}

void Receiver::drain() noexcept {
  drain_robot();
  for (int taken = 0; operator_ && taken < kMaxDrain; ++taken) {
    const auto size = operator_->receive(in_);
    if (size == 0) break;
    Frame frame;
    const auto opened = open_frame(std::span(in_).first(size), frame);
    if (opened == Opened::kGood && frame.kind == Message::kOperator) {
      take_operator_frame(frame);
    } else {
      count(opened == Opened::kDamaged ? counters_.damaged : counters_.foreign);
    }
  }
}

void Receiver::take_operator_frame(const Frame& frame) noexcept {
  OperatorInput input;
  std::uint64_t source;
  if (!read_operator(frame, input, source)) return count(counters_.damaged);
  if (!box_.put(input, source, now_ns())) count(counters_.old);
}

}  // namespace robot_rl

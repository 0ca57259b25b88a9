// Events from the loop to the logger: records in a lock-free ring for each thread, merged by their order number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace robot_rl {

/// Calls of the commander and the policy, in order: sufficient to replay a log.
enum class EventKind : std::uint8_t {
  kState = 0,       // LowState (used part), time of Commander::on_state; records.h packs and unpacks
  kOperator = 1,    // OperatorInput
  kPolicyStep = 2,  // PolicyOutput, then the command (floats) and the observation (floats) of the step
  kCommand = 3,     // LowCommand as sent
  kMissedDeadline = 4,
  kFault = 5,  // Finding passed to Commander::on_fault
  kReady = 6,
  kSwap = 7,  // Identity of the bundle that the following control steps run with
};

struct EventHeader {
  std::uint64_t order = 0;   // of all events of the run
  std::int64_t time_ns = 0;  // now_ns of the call
  std::uint32_t bytes = 0;   // of the payload
  EventKind kind = EventKind::kState;
};

/// A ring of bytes with one writer and one reader. `push` never waits and allocates nothing.
class EventRing {
 public:
  explicit EventRing(std::size_t bytes);
  ~EventRing();
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;
  /// Add a record; its payload is the parts one after the other. False if the ring is full (counted).
  bool push(EventKind kind, std::uint64_t order, std::int64_t time_ns,
            std::span<const std::span<const std::byte>> parts) noexcept;
  /// Next record, copied to `payload` (at least kMaxEvent bytes); false: none.
  bool pop(EventHeader& header, std::span<std::byte> payload) noexcept;
  /// Order number of the next record without taking it; false: none.
  bool peek(EventHeader& header) const noexcept;
  std::uint64_t dropped() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

inline constexpr std::size_t kMaxEvent = 1 << 16;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace robot_rl

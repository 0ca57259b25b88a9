// Content of the rings: events packed by the loop and unpacked by logger and replay. Of arrays only the used
// part is packed. Packing allocates nothing.
#pragma once

#include <cstdint>
#include <span>

#include "events.h"
#include "handover.h"
#include "policy.h"
#include "safety.h"
#include "types.h"

namespace robot_rl {

/// Each adds one event; false if the ring is full (counted there). `time_ns` is the `now_ns` of the call.
/// Commander::on_state.
bool push_state(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const LowState& state) noexcept;
/// Commander::on_operator.
bool push_operator(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const OperatorInput& input) noexcept;
/// Policy::step with its output, then Commander::on_policy. The step read the state of its `state_sequence`, the newest
/// one passed to on_state when it began.
/// `command`: the operator's command of the step; `observation`: its result.
bool push_policy(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const PolicyOutput& output,
                 std::span<const float> command, std::span<const float> observation) noexcept;
/// Commander::command: `from_policy` is in the command.
bool push_command(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const LowCommand& command) noexcept;
/// Commander::on_fault.
bool push_fault(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const Finding& finding) noexcept;
/// Commander::on_missed_deadline (kMissedDeadline) or ready (kReady): a call without arguments.
bool push_call(EventRing& ring, std::uint64_t order, std::int64_t time_ns, EventKind kind) noexcept;
/// Another bundle's network from the next control step on.
bool push_swap(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const Identity& identity) noexcept;

/// The inverse of the above; false if the payload does not have the length that it specifies. Parts that were not
/// packed keep their initial values.
bool unpack_state(std::span<const std::byte> payload, LowState& state) noexcept;
bool unpack_operator(std::span<const std::byte> payload, OperatorInput& input) noexcept;
bool unpack_policy(std::span<const std::byte> payload, PolicyOutput& output, std::span<const float>& command,
                   std::span<const float>& observation) noexcept;
bool unpack_command(std::span<const std::byte> payload, LowCommand& command) noexcept;
bool unpack_fault(std::span<const std::byte> payload, Finding& finding) noexcept;
bool unpack_swap(std::span<const std::byte> payload, Identity& identity) noexcept;

}  // namespace robot_rl

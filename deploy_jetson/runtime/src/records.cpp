#include "records.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace robot_rl {

namespace {

using Bytes = std::span<const std::byte>;

int used(std::int32_t count, int most) { return std::clamp<int>(count, 0, most); }

/// The first `count` elements of an array.
template <class T, std::size_t N>
Bytes part(const T (&array)[N], int count) {
  return std::as_bytes(std::span<const T>(array, static_cast<std::size_t>(count)));
}

/// The fields before the first array that is packed in part.
template <class T>
Bytes head(const T& value, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(&value), size};
}

constexpr std::size_t kStateHead = offsetof(LowState, joint_pos);
constexpr std::size_t kPolicyHead = offsetof(PolicyOutput, action);
constexpr std::size_t kCommandHead = offsetof(LowCommand, q);
constexpr std::size_t kOperatorHead = offsetof(OperatorInput, command);

/// Reads a payload from front to back; `good` becomes false if it ends too early.
struct Reader {
  Bytes rest;
  bool good = true;

  void take(void* to, std::size_t size) {
    good = good && size <= rest.size();
    if (!good) return;
    if (size > 0) std::memcpy(to, rest.data(), size);
    rest = rest.subspan(size);
  }
  template <class T, std::size_t N>
  void array(T (&to)[N], std::int32_t count) {
    good = good && count >= 0 && static_cast<std::size_t>(count) <= N;
    if (good) take(to, static_cast<std::size_t>(count) * sizeof(T));
  }
  std::span<const float> floats(std::size_t count) {
    good = good && count * sizeof(float) <= rest.size();
    if (!good) return {};
    const std::span<const float> found(reinterpret_cast<const float*>(rest.data()), count);
    rest = rest.subspan(count * sizeof(float));
    return found;
  }
  bool done() const { return good && rest.empty(); }
};

}  // namespace

bool push_state(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const LowState& s) noexcept {
  const int n = used(s.joints, kMaxJoints), feet = used(s.feet, kMaxFeet), heights = used(s.heights, kMaxHeights),
            measured = used(s.measured_count, kMaxMeasured);
  return ring.push(EventKind::kState, order, time_ns,
                   {head(s, kStateHead), part(s.joint_pos, n), part(s.joint_vel, n), part(s.joint_effort, n),
                    part(s.temperature_c, n), part(s.motor_fault, n), part(s.foot_contact, feet),
                    part(s.foot_force, feet), part(s.height_scan, heights), part(s.measured, measured)});
}

bool push_operator(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const OperatorInput& input) noexcept {
  OperatorInput kept = input;
  kept.size = used(input.size, kMaxCommand);
  return ring.push(EventKind::kOperator, order, time_ns, {head(kept, kOperatorHead), part(kept.command, kept.size)});
}

bool push_policy(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const PolicyOutput& output,
                 std::span<const float> command, std::span<const float> observation) noexcept {
  const int n = used(output.actions, kMaxJoints);
  const auto size = static_cast<std::uint32_t>(command.size());
  return ring.push(EventKind::kPolicyStep, order, time_ns,
                   {head(output, kPolicyHead), part(output.action, n), part(output.target, n), bytes_of(size),
                    std::as_bytes(command), std::as_bytes(observation)});
}

bool push_command(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const LowCommand& c) noexcept {
  const int n = used(c.joints, kMaxJoints);
  return ring.push(EventKind::kCommand, order, time_ns,
                   {head(c, kCommandHead), part(c.q, n), part(c.dq, n), part(c.kp, n), part(c.kd, n), part(c.tau, n)});
}

bool push_fault(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const Finding& finding) noexcept {
  return ring.push(EventKind::kFault, order, time_ns, {bytes_of(finding)});
}

bool push_call(EventRing& ring, std::uint64_t order, std::int64_t time_ns, EventKind kind) noexcept {
  return ring.push(kind, order, time_ns, {});
}

bool push_swap(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const Identity& identity) noexcept {
  return ring.push(EventKind::kSwap, order, time_ns, {bytes_of(identity)});
}

bool unpack_state(Bytes payload, LowState& s) noexcept {
  Reader reader{payload};
  reader.take(&s, kStateHead);
  if (!reader.good) return false;
  reader.array(s.joint_pos, s.joints);
  reader.array(s.joint_vel, s.joints);
  reader.array(s.joint_effort, s.joints);
  reader.array(s.temperature_c, s.joints);
  reader.array(s.motor_fault, s.joints);
  reader.array(s.foot_contact, s.feet);
  reader.array(s.foot_force, s.feet);
  reader.array(s.height_scan, s.heights);
  reader.array(s.measured, s.measured_count);
  return reader.done();
}

bool unpack_operator(Bytes payload, OperatorInput& input) noexcept {
  Reader reader{payload};
  reader.take(&input, kOperatorHead);
  if (reader.good) reader.array(input.command, input.size);
  return reader.done();
}

bool unpack_policy(Bytes payload, PolicyOutput& output, std::span<const float>& command,
                   std::span<const float>& observation) noexcept {
  Reader reader{payload};
  std::uint32_t size = 0;
  reader.take(&output, kPolicyHead);
  if (!reader.good) return false;
  reader.array(output.action, output.actions);
  reader.array(output.target, output.actions);
  reader.take(&size, sizeof(size));
  command = reader.floats(size);
  observation = reader.floats(reader.rest.size() / sizeof(float));
  return reader.done();
}

bool unpack_command(Bytes payload, LowCommand& c) noexcept {
  Reader reader{payload};
  reader.take(&c, kCommandHead);
  if (!reader.good) return false;
  reader.array(c.q, c.joints);
  reader.array(c.dq, c.joints);
  reader.array(c.kp, c.joints);
  reader.array(c.kd, c.joints);
  reader.array(c.tau, c.joints);
  return reader.done();
}

bool unpack_fault(Bytes payload, Finding& finding) noexcept {
  Reader reader{payload};
  reader.take(&finding, sizeof(finding));
  return reader.done();
}

bool unpack_swap(Bytes payload, Identity& identity) noexcept {
  Reader reader{payload};
  reader.take(identity.data(), identity.size());
  return reader.done();
}

}  // namespace robot_rl

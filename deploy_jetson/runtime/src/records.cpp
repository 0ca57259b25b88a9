#include "records.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "fields.h"

namespace robot_rl {

namespace {

using Bytes = std::span<const std::byte>;

/// An archive of fields.h that collects the parts of an event: what is before the first list as it is in memory, then
/// the used part of each list.
struct Parts {
  explicit Parts(const void* message) : begin(static_cast<const std::byte*>(message)) {}
  void number(const char*, const auto&) {}
  void fixed(const char*, const auto&) {}
  template <class T, std::size_t N>
  void list(const char*, const T (&values)[N], std::int32_t count) {
    const auto bytes = std::as_bytes(std::span(values));
    if (size == 0) add({begin, bytes.data()});
    add(bytes.first(static_cast<std::size_t>(std::clamp<int>(count, 0, N)) * sizeof(T)));
  }
  void add(Bytes part) { parts[size++] = part; }
  std::span<const Bytes> all() const { return std::span(parts).first(size); }

  const std::byte* begin;
  std::array<Bytes, 16> parts{};
  std::size_t size = 0;
};

/// The inverse: reads a payload from front to back; `good` becomes false if it ends too early.
struct Reader {
  Reader(Bytes payload, void* message) : rest(payload), begin(static_cast<std::byte*>(message)) {}
  void number(const char*, const auto&) {}
  void fixed(const char*, const auto&) {}
  template <class T, std::size_t N>
  void list(const char*, T (&to)[N], const std::int32_t& count) {
    auto* const first = reinterpret_cast<std::byte*>(to);
    if (begin) take(begin, static_cast<std::size_t>(first - begin));
    begin = nullptr;
    good = good && count >= 0 && static_cast<std::size_t>(count) <= N;
    if (good) take(to, static_cast<std::size_t>(count) * sizeof(T));
  }
  void take(void* to, std::size_t size) {
    good = good && size <= rest.size();
    if (!good) return;
    if (size > 0) std::memcpy(to, rest.data(), size);
    rest = rest.subspan(size);
  }
  std::span<const float> floats(std::size_t count) {
    good = good && count * sizeof(float) <= rest.size();
    if (!good) return {};
    const std::span<const float> found(reinterpret_cast<const float*>(rest.data()), count);
    rest = rest.subspan(count * sizeof(float));
    return found;
  }
  bool done() const { return good && rest.empty(); }

  Bytes rest;
  std::byte* begin;  // of the message, until the fields before its first list are read
  bool good = true;
};

template <class Message>
bool push(EventRing& ring, EventKind kind, std::uint64_t order, std::int64_t time_ns, const Message& message,
          std::initializer_list<Bytes> more = {}) noexcept {
  Parts parts(&message);
  fields(parts, message);
  for (const Bytes part : more) parts.add(part);
  return ring.push(kind, order, time_ns, parts.all());
}

template <class Message>
Reader unpack(Bytes payload, Message& message) noexcept {
  Reader reader(payload, &message);
  fields(reader, message);
  return reader;
}

template <class Value>
bool push_whole(EventRing& ring, EventKind kind, std::uint64_t order, std::int64_t time_ns,
                const Value& value) noexcept {
  const Bytes all[] = {bytes_of(value)};
  return ring.push(kind, order, time_ns, all);
}

template <class Value>
bool unpack_whole(Bytes payload, Value& value) noexcept {
  Reader reader(payload, nullptr);
  reader.take(&value, sizeof(value));
  return reader.done();
}

}  // namespace

bool push_state(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const LowState& state) noexcept {
  return push(ring, EventKind::kState, order, time_ns, state);
}
bool push_operator(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const OperatorInput& input) noexcept {
  OperatorInput kept = input;
  kept.size = std::clamp(input.size, 0, kMaxCommand);
  return push(ring, EventKind::kOperator, order, time_ns, kept);
}
bool push_policy(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const PolicyOutput& output,
                 std::span<const float> command, std::span<const float> observation) noexcept {
  const auto size = static_cast<std::uint32_t>(command.size());
  return push(ring, EventKind::kPolicyStep, order, time_ns, output,
              {bytes_of(size), std::as_bytes(command), std::as_bytes(observation)});
}
bool push_command(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const LowCommand& command) noexcept {
  return push(ring, EventKind::kCommand, order, time_ns, command);
}
bool push_fault(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const Finding& finding) noexcept {
  return push_whole(ring, EventKind::kFault, order, time_ns, finding);
}
bool push_call(EventRing& ring, std::uint64_t order, std::int64_t time_ns, EventKind kind) noexcept {
  return ring.push(kind, order, time_ns, {});
}
bool push_swap(EventRing& ring, std::uint64_t order, std::int64_t time_ns, const Identity& identity) noexcept {
  return push_whole(ring, EventKind::kSwap, order, time_ns, identity);
}

bool unpack_state(Bytes payload, LowState& state) noexcept { return unpack(payload, state).done(); }
bool unpack_operator(Bytes payload, OperatorInput& input) noexcept { return unpack(payload, input).done(); }
bool unpack_policy(Bytes payload, PolicyOutput& output, std::span<const float>& command,
                   std::span<const float>& observation) noexcept {
  Reader reader = unpack(payload, output);
  std::uint32_t size = 0;
  reader.take(&size, sizeof(size));
  command = reader.floats(size);
  observation = reader.floats(reader.rest.size() / sizeof(float));
  return reader.done();
}
bool unpack_command(Bytes payload, LowCommand& command) noexcept { return unpack(payload, command).done(); }
bool unpack_fault(Bytes payload, Finding& finding) noexcept { return unpack_whole(payload, finding); }
bool unpack_swap(Bytes payload, Identity& identity) noexcept { return unpack_whole(payload, identity); }

}  // namespace robot_rl

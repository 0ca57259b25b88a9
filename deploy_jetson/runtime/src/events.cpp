#include "events.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace robot_rl {

namespace {

std::size_t power_of_two(std::size_t least) {
  std::size_t size = 2 * kMaxEvent;  // the largest event fits twice
  while (size < least) size *= 2;
  return size;
}

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

}  // namespace

// Positions count bytes since the start and never wrap; only their indices in the memory do.
struct EventRing::Parts {
  explicit Parts(std::size_t bytes) : memory(power_of_two(bytes)), mask(memory.size() - 1) {}

  void put(std::size_t at, const void* from, std::size_t size) noexcept {
    const auto place = at & mask, first = std::min(size, memory.size() - place);
    if (first > 0) std::memcpy(memory.data() + place, from, first);
    if (size > first) std::memcpy(memory.data(), static_cast<const std::byte*>(from) + first, size - first);
  }
  void get(std::size_t at, void* to, std::size_t size) const noexcept {
    const auto place = at & mask, first = std::min(size, memory.size() - place);
    if (first > 0) std::memcpy(to, memory.data() + place, first);
    if (size > first) std::memcpy(static_cast<std::byte*>(to) + first, memory.data(), size - first);
  }

  std::vector<std::byte> memory;  // written once here, so that its pages are mapped
  const std::size_t mask;
  alignas(64) std::atomic<std::size_t> written{0};
  std::size_t seen_read = 0;  // the writer's copy of `read`, updated only if the ring seems full
  std::atomic<std::uint64_t> dropped{0};
  alignas(64) std::atomic<std::size_t> read{0};
};

EventRing::EventRing(std::size_t bytes) : parts_(std::make_unique<Parts>(bytes)) {}
EventRing::~EventRing() = default;

bool EventRing::push(EventKind kind, std::uint64_t order, std::int64_t time_ns,
                     std::span<const std::span<const std::byte>> parts) noexcept {
  auto& ring = *parts_;
  std::size_t bytes = 0;
  for (const auto part : parts) bytes += part.size();
  const std::size_t total = aligned(sizeof(EventHeader) + bytes);
  const auto at = ring.written.load(std::memory_order_relaxed);
  if (at + total - ring.seen_read > ring.memory.size()) ring.seen_read = ring.read.load(std::memory_order_acquire);
  if (bytes > kMaxEvent || at + total - ring.seen_read > ring.memory.size()) {
    ring.dropped.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  EventHeader header;
  header.order = order;
  header.time_ns = time_ns;
  header.bytes = static_cast<std::uint32_t>(bytes);
  header.kind = kind;
  ring.put(at, &header, sizeof(header));
  std::size_t place = at + sizeof(header);
  for (const auto part : parts) {
    ring.put(place, part.data(), part.size());
    place += part.size();
  }
  ring.written.store(at + total, std::memory_order_release);
  return true;
}

bool EventRing::peek(EventHeader& header) const noexcept {
  const auto& ring = *parts_;
  const auto at = ring.read.load(std::memory_order_relaxed);
  if (at == ring.written.load(std::memory_order_acquire)) return false;
  ring.get(at, &header, sizeof(header));
  return true;
}

bool EventRing::pop(EventHeader& header, std::span<std::byte> payload) noexcept {
  if (!peek(header)) return false;
  auto& ring = *parts_;
  const auto at = ring.read.load(std::memory_order_relaxed);
  const std::size_t size = std::min<std::size_t>(header.bytes, payload.size());
  if (size > 0) ring.get(at + sizeof(header), payload.data(), size);
  ring.read.store(at + aligned(sizeof(header) + header.bytes), std::memory_order_release);
  return true;
}

std::uint64_t EventRing::dropped() const noexcept { return parts_->dropped.load(std::memory_order_relaxed); }

}  // namespace robot_rl

// Shared memory: a segment of lanes, one for each client; a lane is a ring of frames in each direction. Waiting uses
// a futex. A side that dies in the middle of a frame leaves a slot that does not match its CRC, and blocks nobody.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>

#include "channel.h"
#include "error.h"
#include "protocol.h"
#include "rt.h"

namespace robot_rl {
namespace {

constexpr std::uint32_t kSegmentMagic = 0x31534252;  // "RBS1"
constexpr std::uint64_t kSlots = 32;
constexpr std::int64_t kSlice = 5'000'000;  // [ns] between checks of a descriptor while sleeping on a futex

/// A slot's mark is 2 ticket + 2 once it contains the whole frame of that ticket, odd while it is written.
struct Slot {
  std::atomic<std::uint64_t> mark;
  std::atomic<std::uint32_t> size;
  std::byte frame[kMaxFrame];
};

/// One writer, one reader; a writer that is ahead overwrites the oldest.
struct Ring {
  std::atomic<std::uint64_t> head;
  Slot slots[kSlots];
};

struct Lane {
  std::atomic<std::uint32_t> owner;  // process of the client, 0: free
  std::atomic<std::uint32_t> turn;   // counts owners, so that the robot's side detects a change
  std::atomic<std::uint32_t> bell;   // rings for the client
  Ring to_robot, to_client;
};

struct Segment {
  std::atomic<std::uint32_t> magic;  // written last
  std::uint32_t bytes;
  std::atomic<std::uint32_t> server;  // process
  std::atomic<std::uint32_t> bell;    // rings for the robot's side
  Lane lanes[kMaxPeers];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

void ring_bell(std::atomic<std::uint32_t>& bell) noexcept {
  bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

/// Sleep until the bell differs from `heard` or the deadline passed.
void wait_bell(std::atomic<std::uint32_t>& bell, std::uint32_t heard, std::int64_t deadline_ns) noexcept {
  const timespec until = {static_cast<time_t>(deadline_ns / 1'000'000'000),
                          static_cast<long>(deadline_ns % 1'000'000'000)};
  syscall(SYS_futex, &bell, FUTEX_WAIT_BITSET, heard, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void put(Ring& ring, std::span<const std::byte> frame) noexcept {
  const auto ticket = ring.head.load(std::memory_order_relaxed);
  auto& slot = ring.slots[ticket % kSlots];
  slot.mark.store(2 * ticket + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  slot.size.store(static_cast<std::uint32_t>(frame.size()), std::memory_order_relaxed);
  std::memcpy(slot.frame, frame.data(), frame.size());
  slot.mark.store(2 * ticket + 2, std::memory_order_release);
  ring.head.store(ticket + 1, std::memory_order_release);
}

/// Read the frame at `cursor` and advance it; 0: none. Frames that were overwritten are skipped.
std::size_t get(Ring& ring, std::uint64_t& cursor, std::span<std::byte> frame) noexcept {
  for (std::uint64_t attempt = 0; attempt < 2 * kSlots; ++attempt) {
    const auto head = ring.head.load(std::memory_order_acquire);
    if (head == cursor) return 0;
    if (head - cursor > kSlots) cursor = head > kSlots ? head - kSlots : 0;
    auto& slot = ring.slots[cursor % kSlots];
    const auto mark = slot.mark.load(std::memory_order_acquire);
    const auto size =
        std::min<std::size_t>(slot.size.load(std::memory_order_relaxed), std::min(frame.size(), kMaxFrame));
    std::memcpy(frame.data(), slot.frame, size);
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool whole = mark == 2 * cursor + 2 && mark == slot.mark.load(std::memory_order_relaxed);
    ++cursor;
    if (whole && size > 0) return size;
  }
  return 0;
}

bool alive(std::uint32_t process) noexcept {
  return process != 0 && (kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
}

std::string path_of(const Address& address) { return "/robot_rl." + address.name; }

/// Map a whole segment, with its pages present from the start.
Segment* map_segment(int fd) noexcept {
  void* at = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Segment*>(at);
}

class ShmClient final : public ClientChannel {
 public:
  explicit ShmClient(const Address& address) : path_(path_of(address)), text_(address.text) {}
  ~ShmClient() override {
    if (lane_ != nullptr) {
      ring_bell(segment_->bell);
      lane_->owner.store(0, std::memory_order_release);
    }
    if (segment_ != nullptr) munmap(segment_, sizeof(Segment));
  }

  bool open() override {
    if (lane_ != nullptr && alive(segment_->server.load())) return true;
    if (segment_ != nullptr) munmap(segment_, sizeof(Segment));
    segment_ = nullptr;
    lane_ = nullptr;
    const int fd = shm_open(path_.c_str(), O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) {
      if (errno == ENOENT) return false;
      throw UserError("transport: cannot open " + text_ + ": " + std::strerror(errno));
    }
    struct stat about{};
    if (fstat(fd, &about) == 0 && about.st_size == static_cast<off_t>(sizeof(Segment))) segment_ = map_segment(fd);
    close(fd);
    if (segment_ == nullptr || segment_->magic.load(std::memory_order_acquire) != kSegmentMagic ||
        segment_->bytes != sizeof(Segment) || !alive(segment_->server.load())) {
      return false;  // incomplete, left by a dead process, or of another version: the server creates it again
    }
    return claim();
  }

  bool send(std::span<const std::byte> frame) noexcept override {
    if (lane_ == nullptr || frame.size() > kMaxFrame) return false;
    put(lane_->to_robot, frame);
    ring_bell(segment_->bell);
    return true;
  }

  std::size_t receive(std::span<std::byte> frame) noexcept override {
    return lane_ == nullptr ? 0 : get(lane_->to_client, cursor_, frame);
  }

  bool wait(std::int64_t deadline_ns, int also_fd) noexcept override;

 private:
  /// Take a free lane, or one with a dead owner.
  bool claim() {
    for (auto& lane : segment_->lanes) {
      auto owner = lane.owner.load();
      if (alive(owner) || !lane.owner.compare_exchange_strong(owner, static_cast<std::uint32_t>(getpid()))) continue;
      lane_ = &lane;
      cursor_ = lane.to_client.head.load();
      lane.turn.fetch_add(1, std::memory_order_release);
      return true;
    }
    throw UserError("transport: all " + std::to_string(kMaxPeers) + " lanes of " + text_ +
                    " are in use by living processes");
  }

  std::string path_, text_;
  Segment* segment_ = nullptr;
  Lane* lane_ = nullptr;
  std::uint64_t cursor_ = 0;
};

bool ShmClient::wait(std::int64_t deadline_ns, int also_fd) noexcept {
  for (;;) {
    const auto heard = lane_ == nullptr ? 0 : lane_->bell.load(std::memory_order_acquire);
    if (lane_ != nullptr && lane_->to_client.head.load(std::memory_order_acquire) != cursor_) return true;
    std::byte probe;
    if (also_fd >= 0 && ::recv(also_fd, &probe, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) return true;
    const auto now = now_ns();
    if (now >= deadline_ns) return false;
    const auto until = also_fd >= 0 ? std::min(deadline_ns, now + kSlice) : deadline_ns;
    if (lane_ == nullptr) {
      sleep_until(until);
    } else {
      wait_bell(lane_->bell, heard, until);
    }
  }
}

class ShmServer final : public ServerChannel {
 public:
  explicit ShmServer(const Address& address) : path_(path_of(address)) {
    refuse_if_served(address);
    const int fd = shm_open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) throw UserError("transport: cannot create " + address.text + ": " + std::strerror(errno));
    if (ftruncate(fd, sizeof(Segment)) == 0) segment_ = map_segment(fd);
    const int error = errno;
    close(fd);
    if (segment_ == nullptr) {
      shm_unlink(path_.c_str());
      throw UserError("transport: cannot map " + std::to_string(sizeof(Segment)) + " bytes for " + address.text + ": " +
                      std::strerror(error));
    }
    new (segment_) Segment{};
    segment_->bytes = sizeof(Segment);
    segment_->server.store(static_cast<std::uint32_t>(getpid()));
    segment_->magic.store(kSegmentMagic, std::memory_order_release);
  }

  ~ShmServer() override {
    segment_->server.store(0);
    shm_unlink(path_.c_str());
    munmap(segment_, sizeof(Segment));
  }

  std::size_t receive(std::span<std::byte> frame, int& peer) noexcept override {
    for (int step = 0; step < kMaxPeers; ++step) {
      last_ = next_;
      next_ = (next_ + 1) % kMaxPeers;
      const auto size = get(segment_->lanes[last_].to_robot, cursors_[last_], frame);
      if (size == 0) continue;
      const auto turn = segment_->lanes[last_].turn.load(std::memory_order_acquire);
      if (turn != turns_[last_]) adopted_[last_] = false;
      peer = adopted_[last_] ? last_ : -1;
      return size;
    }
    return 0;
  }

  int adopt() noexcept override {
    turns_[last_] = segment_->lanes[last_].turn.load(std::memory_order_acquire);
    adopted_[last_] = true;
    return last_;
  }

  void forget(int peer) noexcept override { adopted_[peer] = false; }

  bool send(int peer, std::span<const std::byte> frame) noexcept override {
    auto& lane = segment_->lanes[peer];
    if (lane.owner.load(std::memory_order_relaxed) == 0 || frame.size() > kMaxFrame) return false;
    put(lane.to_client, frame);
    ring_bell(lane.bell);
    return true;
  }

  bool wait(std::int64_t deadline_ns) noexcept override {
    for (;;) {
      const auto heard = segment_->bell.load(std::memory_order_acquire);
      for (int lane = 0; lane < kMaxPeers; ++lane) {
        if (segment_->lanes[lane].to_robot.head.load(std::memory_order_acquire) != cursors_[lane]) return true;
      }
      if (now_ns() >= deadline_ns) return false;
      wait_bell(segment_->bell, heard, deadline_ns);
    }
  }

 private:
  /// Remove the segment of a dead process; throw if a living one serves it.
  void refuse_if_served(const Address& address) const {
    const int fd = shm_open(path_.c_str(), O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    struct stat about{};
    Segment* left = nullptr;
    if (fstat(fd, &about) == 0 && about.st_size == static_cast<off_t>(sizeof(Segment))) left = map_segment(fd);
    close(fd);
    const auto server = left == nullptr ? 0 : left->server.load();
    if (left != nullptr) munmap(left, sizeof(Segment));
    if (alive(server)) {
      throw UserError("transport: process " + std::to_string(server) + " serves " + address.text +
                      " already; name another");
    }
    shm_unlink(path_.c_str());
  }

  std::string path_;
  Segment* segment_ = nullptr;
  int last_ = 0, next_ = 0;
  std::array<std::uint64_t, kMaxPeers> cursors_{};
  std::array<std::uint32_t, kMaxPeers> turns_{};
  std::array<bool, kMaxPeers> adopted_{};
};

}  // namespace

std::unique_ptr<ClientChannel> make_shm_client(const Address& address) { return std::make_unique<ShmClient>(address); }
std::unique_ptr<ServerChannel> make_shm_server(const Address& address) { return std::make_unique<ShmServer>(address); }

}  // namespace robot_rl

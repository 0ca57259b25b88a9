// What carries frames between the policy's side and the robot: datagrams over UDP or rings in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "address.h"

namespace robot_rl {

inline constexpr int kMaxPeers = 8;  // at once at the robot's side

/// The policy's side. After `open` nothing is allocated and nothing waits but `wait`.
class ClientChannel {
 public:
  virtual ~ClientChannel() = default;
  /// Reach for the robot's side; false where it is not there yet. Throws UserError where it never can be.
  virtual bool open() = 0;
  virtual bool send(std::span<const std::byte> frame) noexcept = 0;
  /// The next frame, its size; 0: none is there.
  virtual std::size_t receive(std::span<std::byte> frame) noexcept = 0;
  /// Sleep until a frame is there, `also_fd` (-1: none) can be read, or the deadline (CLOCK_MONOTONIC) passed.
  virtual bool wait(std::int64_t deadline_ns, int also_fd) noexcept = 0;
};

/// The robot's side: numbers whoever it hears from.
class ServerChannel {
 public:
  virtual ~ServerChannel() = default;
  /// The next frame, its size (0: none is there) and from which peer; -1: one that was not adopted.
  virtual std::size_t receive(std::span<std::byte> frame, int& peer) noexcept = 0;
  /// Give the sender of the frame received last a number, 0 to kMaxPeers - 1; -1: no room.
  virtual int adopt() noexcept = 0;
  virtual void forget(int peer) noexcept = 0;
  virtual bool send(int peer, std::span<const std::byte> frame) noexcept = 0;
  virtual bool wait(std::int64_t deadline_ns) noexcept = 0;
};

std::unique_ptr<ClientChannel> make_udp_client(const Address& address);
/// Binds. Throws UserError where the address is taken or is none of this machine.
std::unique_ptr<ServerChannel> make_udp_server(const Address& address, const std::string& what);
std::unique_ptr<ClientChannel> make_shm_client(const Address& address);
/// Creates the segment, and removes it in the end. Throws UserError where a living process serves that name.
std::unique_ptr<ServerChannel> make_shm_server(const Address& address);

/// A UDP socket that listens for the operator.
class OperatorSocket {
 public:
  explicit OperatorSocket(const Address& address);
  ~OperatorSocket();
  OperatorSocket(const OperatorSocket&) = delete;
  OperatorSocket& operator=(const OperatorSocket&) = delete;
  std::size_t receive(std::span<std::byte> frame) noexcept;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// A UDP socket that speaks to an operator's address.
class OperatorSender {
 public:
  explicit OperatorSender(const Address& address);
  ~OperatorSender();
  OperatorSender(const OperatorSender&) = delete;
  OperatorSender& operator=(const OperatorSender&) = delete;
  bool send(std::span<const std::byte> frame) noexcept;

 private:
  int fd_;
};

}  // namespace robot_rl

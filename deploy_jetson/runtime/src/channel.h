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

/// The policy's side. After `open` nothing is allocated, and only `wait` waits.
class ClientChannel {
 public:
  virtual ~ClientChannel() = default;
  /// Connect to the robot's side; false if it is not there yet. Throws UserError if it can never be.
  virtual bool open() = 0;
  virtual bool send(std::span<const std::byte> frame) noexcept = 0;
  /// Read the next frame; returns its size, 0 if there is none.
  virtual std::size_t receive(std::span<std::byte> frame) noexcept = 0;
  /// Sleep until a frame is there, `also_fd` (-1: none) can be read, or the deadline (CLOCK_MONOTONIC) passed.
  virtual bool wait(std::int64_t deadline_ns, int also_fd) noexcept = 0;
};

/// The robot's side: numbers the peers from which it receives.
class ServerChannel {
 public:
  virtual ~ServerChannel() = default;
  /// Read the next frame: its size (0: there is none) and its peer; -1: one that was not adopted.
  virtual std::size_t receive(std::span<std::byte> frame, int& peer) noexcept = 0;
  /// Give the sender of the frame received last a number, 0 to kMaxPeers - 1; -1: no room.
  virtual int adopt() noexcept = 0;
  virtual void forget(int peer) noexcept = 0;
  virtual bool send(int peer, std::span<const std::byte> frame) noexcept = 0;
  virtual bool wait(std::int64_t deadline_ns) noexcept = 0;
};

std::unique_ptr<ClientChannel> make_udp_client(const Address& address);
/// Binds. Throws UserError if the address is in use or does not belong to this machine.
std::unique_ptr<ServerChannel> make_udp_server(const Address& address, const std::string& what);
std::unique_ptr<ClientChannel> make_shm_client(const Address& address);
/// Creates the segment, and removes it at the end. Throws UserError if a living process serves that name.
std::unique_ptr<ServerChannel> make_shm_server(const Address& address);

/// A UDP socket that listens: for the operator, or for other robots; `what` begins messages.
class DatagramSocket {
 public:
  DatagramSocket(const Address& address, const std::string& what);
  ~DatagramSocket();
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;
  std::size_t receive(std::span<std::byte> frame) noexcept;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// A UDP socket that sends to one address.
class DatagramSender {
 public:
  DatagramSender(const Address& address, const std::string& what);
  ~DatagramSender();
  DatagramSender(const DatagramSender&) = delete;
  DatagramSender& operator=(const DatagramSender&) = delete;
  bool send(std::span<const std::byte> frame) noexcept;

 private:
  int fd_;
};

}  // namespace robot_rl

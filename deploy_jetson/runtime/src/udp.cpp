// Datagrams: one frame each. The policy's socket is connected, so that it receives only from the robot's address.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "channel.h"
#include "error.h"
#include "rt.h"

namespace robot_rl {
namespace {

sockaddr_in resolve(const Address& address, const std::string& what) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  const int error = getaddrinfo(address.name.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr) {
    throw UserError(what + ": '" + address.name + "' is not an IPv4 address or known host (" + gai_strerror(error) +
                    ")");
  }
  sockaddr_in result;
  std::memcpy(&result, found->ai_addr, sizeof(result));
  freeaddrinfo(found);
  result.sin_port = htons(address.port);
  return result;
}

/// A socket that never blocks; requests expedited forwarding from the network.
int make_socket(const std::string& what) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw UserError(what + ": cannot open a UDP socket: " + std::strerror(errno));
  const int service = 0xb8, room = 1 << 20;
  setsockopt(fd, IPPROTO_IP, IP_TOS, &service, sizeof(service));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
  return fd;
}

int make_bound(const Address& address, const std::string& what) {
  const auto where = resolve(address, what);
  const int fd = make_socket(what);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    const int error = errno;
    close(fd);
    throw UserError(what + ": cannot listen at " + address.text + ": " + std::strerror(error) +
                    (error == EADDRINUSE ? "; another program listens there, name another port" : ""));
  }
  return fd;
}

int make_connected(const Address& address, const std::string& what) {
  const auto where = resolve(address, what);
  const int fd = make_socket(what);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    const int error = errno;
    close(fd);
    throw UserError(what + ": cannot reach " + address.text + ": " + std::strerror(error));
  }
  return fd;
}

/// Sleep until one of two sockets can be read or the deadline passed.
bool wait_readable(int first, int second, std::int64_t deadline_ns) noexcept {
  std::array<pollfd, 2> list = {pollfd{first, POLLIN, 0}, pollfd{second, POLLIN, 0}};
  for (;;) {
    const auto left = std::max<std::int64_t>(0, deadline_ns - now_ns());
    const timespec time = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    const int ready = ppoll(list.data(), list.size(), &time, nullptr);  // a negative fd is ignored
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR || now_ns() >= deadline_ns) return false;
  }
}

/// Read one datagram; one that is too long for a frame is truncated and so found damaged.
std::size_t receive_one(int fd, std::span<std::byte> frame, sockaddr_in* from) noexcept {
  for (int attempt = 0; attempt < 16; ++attempt) {
    socklen_t size = sizeof(sockaddr_in);
    const auto got =
        recvfrom(fd, frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(from), from ? &size : nullptr);
    if (got > 0) return static_cast<std::size_t>(got);
    // The system reports a refused datagram of ours here, and an empty datagram is ignored: read the next one.
    if (got < 0 && errno != ECONNREFUSED && errno != EINTR) return 0;
  }
  return 0;
}

class UdpClient final : public ClientChannel {
 public:
  explicit UdpClient(const Address& address) : fd_(make_connected(address, "transport")) {}
  ~UdpClient() override { close(fd_); }
  bool open() override { return true; }
  bool send(std::span<const std::byte> frame) noexcept override {
    // If the last datagram was refused, the next call reports that and sends nothing: send again.
    auto sent = ::send(fd_, frame.data(), frame.size(), MSG_DONTWAIT);
    if (sent < 0 && errno == ECONNREFUSED) sent = ::send(fd_, frame.data(), frame.size(), MSG_DONTWAIT);
    return sent == static_cast<ssize_t>(frame.size());
  }
  std::size_t receive(std::span<std::byte> frame) noexcept override { return receive_one(fd_, frame, nullptr); }
  bool wait(std::int64_t deadline_ns, int also_fd) noexcept override {
    return wait_readable(fd_, also_fd, deadline_ns);
  }

 private:
  int fd_;
};

class UdpServer final : public ServerChannel {
 public:
  UdpServer(const Address& address, const std::string& what) : fd_(make_bound(address, what)) {}
  ~UdpServer() override { close(fd_); }

  std::size_t receive(std::span<std::byte> frame, int& peer) noexcept override {
    const auto size = receive_one(fd_, frame, &last_);
    peer = -1;
    for (int index = 0; index < kMaxPeers; ++index) {
      if (peers_[index].used && same(peers_[index].address, last_)) peer = index;
    }
    if (size > 0 && peer >= 0) peers_[peer].heard = ++clock_;
    return size;
  }

  int adopt() noexcept override {
    int place = 0;
    for (int index = 0; index < kMaxPeers; ++index) {
      if (peers_[index].used && same(peers_[index].address, last_)) return index;
      if (peers_[index].heard < peers_[place].heard) place = index;
    }
    peers_[place] = {last_, ++clock_, true};  // a free place, or the peer that was silent longest
    return place;
  }

  void forget(int peer) noexcept override { peers_[peer] = {}; }
  bool send(int peer, std::span<const std::byte> frame) noexcept override {
    const auto& to = peers_[peer].address;
    return sendto(fd_, frame.data(), frame.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) ==
           static_cast<ssize_t>(frame.size());
  }
  bool wait(std::int64_t deadline_ns) noexcept override { return wait_readable(fd_, -1, deadline_ns); }

 private:
  struct Peer {
    sockaddr_in address{};
    std::uint64_t heard = 0;
    bool used = false;
  };
  static bool same(const sockaddr_in& a, const sockaddr_in& b) {
    return a.sin_addr.s_addr == b.sin_addr.s_addr && a.sin_port == b.sin_port;
  }

  int fd_;
  std::uint64_t clock_ = 0;
  sockaddr_in last_{};
  std::array<Peer, kMaxPeers> peers_{};
};

Address udp_only(const Address& address, const std::string& what) {
  if (address.kind != "udp") throw UserError(what + "=" + address.text + ": must be udp:HOST:PORT");
  return address;
}

}  // namespace

std::unique_ptr<ClientChannel> make_udp_client(const Address& address) { return std::make_unique<UdpClient>(address); }

std::unique_ptr<ServerChannel> make_udp_server(const Address& address, const std::string& what) {
  return std::make_unique<UdpServer>(address, what);
}

DatagramSocket::DatagramSocket(const Address& address, const std::string& what)
    : fd_(make_bound(udp_only(address, what), what)) {}
DatagramSocket::~DatagramSocket() { close(fd_); }
std::size_t DatagramSocket::receive(std::span<std::byte> frame) noexcept { return receive_one(fd_, frame, nullptr); }

DatagramSender::DatagramSender(const Address& address, const std::string& what)
    : fd_(make_connected(udp_only(address, what), what)) {}
DatagramSender::~DatagramSender() { close(fd_); }
bool DatagramSender::send(std::span<const std::byte> frame) noexcept {
  auto sent = ::send(fd_, frame.data(), frame.size(), MSG_DONTWAIT);
  if (sent < 0 && errno == ECONNREFUSED) sent = ::send(fd_, frame.data(), frame.size(), MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(frame.size());
}

}  // namespace robot_rl

// Addresses of transports on the command line.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace robot_rl {

/// "udp:HOST:PORT", "shm:NAME", "dds:unitree_go" or "dds:unitree_hg", each optionally followed by
/// "?name=value&name=value".
struct Address {
  std::string kind, name;  // "udp" and the host, "shm" and the segment, "dds" and the message family
  std::uint16_t port = 0;  // of udp
  std::map<std::string, std::string> options;
  std::string text;  // "udp 127.0.0.1:9870", for messages

  /// The value of an option, or its default.
  std::string option(const std::string& name, const std::string& otherwise) const;
  bool flag(const std::string& name, bool otherwise) const;
};

/// Read an address; `what` ("transport", "operator") begins the message. Throws UserError.
Address parse_address(const std::string& text, const std::string& what);

}  // namespace robot_rl

#include "address.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "error.h"

namespace robot_rl {
namespace {

const std::map<std::string, std::set<std::string>>& known_options() {
  static const std::map<std::string, std::set<std::string>> known = {
      {"udp", {"states"}},
      {"shm", {"states"}},
      {"dds", {"states", "domain", "interface", "robot", "crc", "mode_machine", "dead_man", "still_ms",
               "battery"}},
  };
  return known;
}

[[noreturn]] void refuse(const std::string& what, const std::string& text, const std::string& wanted) {
  throw UserError(what + "=" + text + ": " + wanted);
}

void read_options(Address& address, const std::string& text, const std::string& list, const std::string& what) {
  const auto& known = known_options().at(address.kind);
  for (std::size_t at = 0; at <= list.size();) {
    const auto end = std::min(list.find('&', at), list.size());
    const auto item = list.substr(at, end - at);
    const auto equals = item.find('=');
    const auto name = item.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == item.size()) {
      refuse(what, text, "after the '?' options are expected as name=value, separated by '&'");
    }
    if (!known.contains(name)) {
      refuse(what, text, "unknown option '" + name + "'; the options are " + joined(known));
    }
    if (!address.options.emplace(name, item.substr(equals + 1)).second) {
      refuse(what, text, "option '" + name + "' is given twice");
    }
    at = end + 1;
  }
}

void read_udp(Address& address, const std::string& text, const std::string& rest, const std::string& what) {
  const auto colon = rest.rfind(':');
  int port = 0;
  if (colon != std::string::npos && colon > 0) {
    const auto* end = rest.data() + rest.size();
    const auto [at, error] = std::from_chars(rest.data() + colon + 1, end, port);
    if (error != std::errc() || at != end) port = 0;
  }
  if (port < 1 || port > 65535)
    refuse(what, text, "must be udp:HOST:PORT with a port from 1 to 65535, such as udp:127.0.0.1:9870");
  address.name = rest.substr(0, colon);
  address.port = static_cast<std::uint16_t>(port);
  address.text = "udp " + address.name + ":" + std::to_string(port);
}

void read_shm(Address& address, const std::string& text, const std::string& rest, const std::string& what) {
  const auto good = [](char sign) {
    return (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') || (sign >= '0' && sign <= '9') ||
           sign == '_' || sign == '-';
  };
  if (rest.empty() || rest.size() > 64 || !std::all_of(rest.begin(), rest.end(), good)) {
    refuse(what, text, "must be shm:NAME with a name of at most 64 letters, digits, '_' and '-'");
  }
  address.name = rest;
  address.text = "shm " + rest;
}

void read_dds(Address& address, const std::string& text, const std::string& rest, const std::string& what) {
  if (rest != "unitree_go" && rest != "unitree_hg") refuse(what, text, "must be dds:unitree_go or dds:unitree_hg");
  for (const auto& [name, most] :
       {std::pair{"domain", 230}, {"mode_machine", 255}, {"battery", 100}, {"still_ms", 60000}}) {
    int number = -1;
    const auto given = address.option(name, "0");
    const auto [at, error] = std::from_chars(given.data(), given.data() + given.size(), number);
    if (error != std::errc() || at != given.data() + given.size() || number < 0 || number > most) {
      refuse(what, text, std::string(name) + " must be a whole number from 0 to " + std::to_string(most));
    }
  }
  const auto interface = address.option("interface", "lo");
  const auto good = [](char sign) {
    return (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') || (sign >= '0' && sign <= '9') ||
           sign == '_' || sign == '-' || sign == '.' || sign == ':' || sign == '@';
  };
  if (interface.size() > 15 || !std::all_of(interface.begin(), interface.end(), good)) {
    refuse(what, text, "interface must be the name of a network interface, such as eth0");
  }
  address.name = rest;
  address.text = "dds " + rest + " domain " + address.option("domain", "0") + " on " + interface;
}

}  // namespace

std::string Address::option(const std::string& name, const std::string& otherwise) const {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : found->second;
}

bool Address::flag(const std::string& name, bool otherwise) const { return option(name, otherwise ? "1" : "0") == "1"; }

Address parse_address(const std::string& text, const std::string& what) {
  const auto colon = text.find(':');
  Address address;
  address.kind = text.substr(0, colon);
  if (colon == std::string::npos || !known_options().contains(address.kind)) {
    refuse(what, text, "must be udp:HOST:PORT, shm:NAME, dds:unitree_go or dds:unitree_hg");
  }
  const auto mark = text.find('?', colon);
  if (mark != std::string::npos) read_options(address, text, text.substr(mark + 1), what);
  const auto rest = text.substr(colon + 1, mark == std::string::npos ? std::string::npos : mark - colon - 1);
  if (address.kind == "udp") read_udp(address, text, rest, what);
  if (address.kind == "shm") read_shm(address, text, rest, what);
  if (address.kind == "dds") read_dds(address, text, rest, what);
  for (const auto* name : {"states", "crc"}) {
    const auto value = address.option(name, "1");
    if (value != "0" && value != "1") refuse(what, text, std::string(name) + " must be 0 or 1");
  }
  return address;
}

}  // namespace robot_rl

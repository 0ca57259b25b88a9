// Error messages of a build without CycloneDDS; otherwise dds_*.cpp replaces these functions.
#include "robot_end.h"
#include "transport_parts.h"

#ifndef ROBOT_RL_DDS
namespace robot_rl {

namespace {

[[noreturn]] void refuse(const std::string& address) {
  throw UserError(
      "transport=" + address +
      ": this build supports only udp and shm; install cyclonedds-dev and cyclonedds-tools and build again for dds");
}

}  // namespace

bool has_dds() { return false; }
std::unique_ptr<Transport> make_dds_transport(const std::string& address, const std::string&, std::uint64_t) {
  refuse(address);
}
std::unique_ptr<RobotEnd> make_dds_robot_end(const std::string& address, const RobotDescription&) { refuse(address); }

}  // namespace robot_rl
#endif

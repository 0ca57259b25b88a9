#include "transport.h"

#include <algorithm>

#include "address.h"
#include "transport_parts.h"

namespace robot_rl {

TransportCounters AtomicCounters::get() const noexcept {
  constexpr auto kOrder = std::memory_order_relaxed;
  return {states.load(kOrder), commands.load(kOrder), lost.load(kOrder),    duplicate.load(kOrder),
          old.load(kOrder),    damaged.load(kOrder),  foreign.load(kOrder), send_failed.load(kOrder),
          allocations.load(kOrder)};
}

std::vector<int> fit_robot(const Contract& contract, const RobotDescription& robot) {
  if (robot.robot != contract.robot) {
    throw ContractError("robot: the policy is for '" + contract.robot + "', the transport leads to '" + robot.robot +
                        "'");
  }
  auto places = resolve_joints(contract, robot.joints);
  for (const auto* signal : {"foot_contact", "foot_force"}) {
    const int wanted = contract.signal_size(signal);
    if (wanted != 0 && wanted != robot.feet) {
      throw ContractError(std::string(signal) + ": the policy reads " + std::to_string(wanted) +
                          " feet, the robot gives " + std::to_string(robot.feet));
    }
  }
  // What it receives from other robots does not come from the robot itself.
  const int measured = contract.measured_size - contract.received_size;
  const int given = robot.measured + robot.heights;
  const bool is_seen = robot.heights == 0 || robot.heights == contract.signal_size(kHeightScan);
  if (measured != 0 && (measured != given || !is_seen)) {
    std::string names;
    for (int place = 0; place < measured;) {
      const auto* term = contract.measured_term(place);
      names += (names.empty() ? "" : ", ") + term->signal;
      place = term->place + term->size;
    }
    throw ContractError(names + ": the policy reads " + std::to_string(measured) +
                        " measured values, the robot gives " + std::to_string(given));
  }
  return places;
}

std::unique_ptr<Transport> make_transport(const std::string& address, const std::string& operator_address,
                                          std::uint64_t commander) {
  if (commander == 0) throw UserError("commander=0: 0 means none; must be another number");
  if (parse_address(address, "transport").kind == "dds")
    return make_dds_transport(address, operator_address, commander);
  return make_frame_transport(address, operator_address, commander);
}

}  // namespace robot_rl

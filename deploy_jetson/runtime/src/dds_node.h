// A participant of CycloneDDS and what our two ends need of it.
#pragma once

#include <dds/dds.h>

#include <cstdint>
#include <string>

#include "address.h"

namespace robot_rl {

inline constexpr int kPolicyReceiver = 75;  // between the policy's thread and the writer's
inline constexpr int kRobotReceiver = 60;   // a simulated robot never stands in the way of a policy beside it

/// A domain of this process, on one network interface; made with the first node in it and gone with the last.
class DdsNode {
 public:
  /// `priority`: of the library's receiving thread where that is permitted; that of the domain's first node counts.
  /// Throws UserError: no such interface, or the domain is already open on another.
  DdsNode(const Address& address, int priority);
  ~DdsNode();
  DdsNode(const DdsNode&) = delete;
  DdsNode& operator=(const DdsNode&) = delete;

  dds_entity_t make_writer(const dds_topic_descriptor_t& type, const char* name);
  /// `wakes`: new data end `wait`. Data of this node's own writers do not come back to it.
  dds_entity_t make_reader(const dds_topic_descriptor_t& type, const char* name, bool wakes);
  /// Sleep until new data came since the last call, `also_fd` can be read, or the deadline (CLOCK_MONOTONIC) passed.
  bool wait(std::int64_t deadline_ns, int also_fd) noexcept;

 private:
  int domain_;
  dds_entity_t participant_ = 0;
  int event_ = -1;  // eventfd that the library's receiving thread writes to
};

/// Take the next sample into `message`; false: none. `writer`: who wrote it.
bool take_sample(dds_entity_t reader, void* message, std::uint64_t* writer) noexcept;

}  // namespace robot_rl

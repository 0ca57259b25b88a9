// A participant of CycloneDDS, as used by both ends.
#pragma once

#include <dds/dds.h>

#include <cstdint>
#include <string>

#include "address.h"

namespace robot_rl {

inline constexpr int kPolicyReceiver = 75;  // between the policy's thread and the writer's; of our own DDS threads, too
inline constexpr int kRobotReceiver = 60;   // a simulated robot never delays a policy on the same machine

/// What one thread sleeps on until others ring.
class Bell {
 public:
  /// Throws UserError.
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() noexcept;
  /// Sleep until it was rung since the last call, `also_fd` (-1: none) can be read, or the deadline (CLOCK_MONOTONIC)
  /// passed; returns whether it did not pass.
  bool wait(std::int64_t deadline_ns, int also_fd) noexcept;

 private:
  int event_;  // eventfd
};

/// A domain of this process, on one network interface; created with its first node and deleted with its last.
class DdsNode {
 public:
  /// `priority`: of the library's receiving thread, if permitted; the value of the domain's first node is used.
  /// Throws UserError: no such interface, or the domain is already open on another.
  DdsNode(const Address& address, int priority);
  ~DdsNode();
  DdsNode(const DdsNode&) = delete;
  DdsNode& operator=(const DdsNode&) = delete;

  dds_entity_t make_writer(const dds_topic_descriptor_t& type, const char* name);
  /// `wakes`: new data ring `bell()`. A node does not receive the data of its own writers.
  dds_entity_t make_reader(const dds_topic_descriptor_t& type, const char* name, bool wakes);
  Bell& bell() noexcept { return bell_; }

 private:
  int domain_;
  dds_entity_t participant_ = 0;
  Bell bell_;
};

/// Take the next sample into `message`; false: none. `writer`: its writer.
bool take_sample(dds_entity_t reader, void* message, std::uint64_t* writer) noexcept;

}  // namespace robot_rl

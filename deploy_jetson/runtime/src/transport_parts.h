// Parts of every transport: counters, the check that robot and contract fit, and detection of other commanders.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport.h"

namespace robot_rl {

/// TransportCounters that one thread counts and others read.
struct AtomicCounters {
  std::atomic<std::uint64_t> states{0}, commands{0}, lost{0}, duplicate{0}, old{0}, damaged{0}, foreign{0},
      send_failed{0}, allocations{0};
  TransportCounters get() const noexcept;
};

inline void count(std::atomic<std::uint64_t>& counter) noexcept { counter.fetch_add(1, std::memory_order_relaxed); }

/// For every joint of the contract its index among the robot's. Throws ContractError if the robot is another one,
/// has other joints, or lacks feet or measured values that the policy reads.
std::vector<int> fit_robot(const Contract& contract, const RobotDescription& robot);

/// Detects another commander from the commander that the robot obeyed last.
class CommanderWatch {
 public:
  explicit CommanderWatch(std::uint64_t own) : own_(own) {}
  /// This end sent a command.
  void sent(std::int64_t now_ns) noexcept {
    if (first_sent_ns_.load(std::memory_order_relaxed) == 0) first_sent_ns_.store(now_ns, std::memory_order_relaxed);
  }
  /// `obeyed`: from one state. It may be an earlier commander until the robot obeys this end, or until a grace period
  /// is over.
  void see(std::uint64_t obeyed, std::int64_t now_ns) noexcept {
    if (obeyed == 0) return;
    if (obeyed == own_) {
      obeyed_own_ = true;
      return;
    }
    const auto first = first_sent_ns_.load(std::memory_order_relaxed);
    if (first != 0 && now_ns - first > kGrace) ++late_;
    if (obeyed_own_ || (before_ != 0 && obeyed != before_) || late_ > kLateStates) found(now_ns);
    before_ = obeyed;
  }
  void found(std::int64_t now_ns) noexcept { found_ns_.store(now_ns, std::memory_order_relaxed); }
  /// Whether there was another one recently: after it has gone, the operator may continue.
  bool second(std::int64_t now_ns) const noexcept {
    const auto found = found_ns_.load(std::memory_order_relaxed);
    return found != 0 && now_ns - found < kPresent;
  }

 private:
  static constexpr std::int64_t kGrace = 100'000'000, kPresent = 500'000'000;  // [ns]
  static constexpr int kLateStates = 50;
  std::uint64_t own_, before_ = 0;
  bool obeyed_own_ = false;
  int late_ = 0;
  std::atomic<std::int64_t> first_sent_ns_{0}, found_ns_{0};
};

/// Whether an operator's address is a socket to listen at; it is not for "robot" and "" (only through the robot:
/// frames that it forwards, or its remote control) and "none".
inline bool names_socket(const std::string& operator_address) {
  return !operator_address.empty() && operator_address != "robot" && operator_address != "none";
}

/// Our own protocol over UDP or shared memory.
std::unique_ptr<Transport> make_frame_transport(const std::string& address, const std::string& operator_address,
                                                std::uint64_t commander);
/// CycloneDDS; throws UserError if this program was built without it.
std::unique_ptr<Transport> make_dds_transport(const std::string& address, const std::string& operator_address,
                                              std::uint64_t commander);
/// Whether this program was built with CycloneDDS.
bool has_dds();

}  // namespace robot_rl

// A second process that sends damping commands if the first one dies or hangs.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "contract.h"
#include "settings.h"

namespace robot_rl {

struct WatchdogOptions {
  std::string transport;          // address as in make_transport; the watchdog has its own end
  std::uint64_t commander = 0;    // identifier of the main process: the robot continues to obey it
  double timeout_s = 0.010;       // silence after which it takes over
  double connect_timeout_s = 10;
  int fifo = 0;                   // priority; 0: the system's default
};

/// The main process's handle of its watchdog, which waits on a pipe that closes when the main process ends in any way
/// and reads a heartbeat in shared memory. After it took over it sends damping at the writer's period until the main
/// process is alive again and acknowledged it, until this object is destroyed, or for 10 s after the last heartbeat.
class Watchdog {
 public:
  /// Fork it. Call before threads, locked memory and the main process's own connection. Throws UserError.
  Watchdog(const Contract& contract, const Settings& settings, const WatchdogOptions& options);
  /// Tell it to stop, and wait for its end.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Wait until it is connected to the robot. Throws UserError with its message if it fails. `note`: what was not
  /// permitted, or empty.
  void wait_ready(double timeout_s, std::string& note);
  /// From now on silence is detected.
  void arm() noexcept;
  /// A heartbeat; `sequence`: of the newest command, the watchdog numbers its own from there.
  void beat(std::int64_t now_ns, std::uint64_t sequence) noexcept;
  /// How many times it took over.
  std::uint32_t takeovers() const noexcept;
  /// The main process damps by itself since this takeover; the watchdog ends its own damping at the next heartbeat.
  void acknowledge(std::uint32_t takeovers) noexcept;
  /// Duration of the silence of the newest takeover until then [ns], without a heartbeat since.
  std::int64_t silence_ns(std::int64_t now_ns) const noexcept;
  std::int64_t timeout_ns() const noexcept { return timeout_ns_; }
  /// Longest observed time between two heartbeats [ns].
  std::int64_t longest_silence_ns() const noexcept;
  /// Whether it is alive; after it died it stays dead. Only one thread may call this.
  bool alive() noexcept;
  /// Whether it gave a sign of life within a second in which this process was awake. Only one thread may call this.
  bool awake(std::int64_t now_ns) noexcept;
  pid_t pid() const { return pid_; }

  struct Page;

 private:
  Page* page_ = nullptr;
  int pipe_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::int64_t looked_ns_ = 0, awake_ns_ = 0;  // of this process
  std::int64_t timeout_ns_;
};

}  // namespace robot_rl

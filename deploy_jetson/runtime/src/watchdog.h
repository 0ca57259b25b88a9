// A second process that sends damping commands where the first one dies or hangs.
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
  std::string transport;          // address as make_transport takes it; the watchdog has an end of its own
  std::uint64_t commander = 0;    // the main process's name: the robot goes on listening
  double timeout_s = 0.010;       // it takes over after a silence that long
  double connect_timeout_s = 10;
  int fifo = 0;                   // priority; 0: as the system has it
};

/// The main process's hold on its watchdog. It waits on a pipe that closes when the main process ends, however that is,
/// and looks at a heartbeat in shared memory. Once it took over it sends damping at the writer's period until the main
/// process is heard again and acknowledged it, until this object is destroyed, or for 10 s after the last sign of life.
class Watchdog {
 public:
  /// Fork it. Call before threads, locked memory and the main process's own connection. Throws UserError.
  Watchdog(const Contract& contract, const Settings& settings, const WatchdogOptions& options);
  /// Tell it that all is done, and wait for its end.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Wait until it has its connection to the robot. Throws UserError with its own line where it has not. `note` is what
  /// it was not permitted, or empty.
  void wait_ready(double timeout_s, std::string& note);
  /// From now on a silence counts.
  void arm() noexcept;
  /// A sign of life; `sequence`: of the newest command, the watchdog numbers its own from there.
  void beat(std::int64_t now_ns, std::uint64_t sequence) noexcept;
  /// How many times it took over.
  std::uint32_t takeovers() const noexcept;
  /// The main process damps by itself since so many takeovers: the watchdog ends its own with the next sign of life.
  void acknowledge(std::uint32_t takeovers) noexcept;
  /// How long the silence of the newest takeover has been by then [ns], where no sign of life came since.
  std::int64_t silence_ns(std::int64_t now_ns) const noexcept;
  std::int64_t timeout_ns() const noexcept { return timeout_ns_; }
  /// Longest time between two signs of life that it saw [ns].
  std::int64_t longest_silence_ns() const noexcept;
  /// Whether it still lives; once it does not, it never does again. One thread asks.
  bool alive() noexcept;
  pid_t pid() const { return pid_; }

  struct Page;

 private:
  Page* page_ = nullptr;
  int pipe_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::int64_t timeout_ns_;
};

}  // namespace robot_rl

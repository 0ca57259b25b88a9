// Writes the loop's events to an MCAP file, in a thread of its own at normal priority.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bundle.h"
#include "events.h"
#include "settings.h"
#include "transport.h"

namespace robot_rl {

/// A log's description of its run; `robot-rl-infer --replay` needs nothing else.
struct LogInfo {
  const Bundle* bundle = nullptr;                                // its contract and network are kept in the log
  Settings settings;                                             // as given to Commander
  std::uint64_t commander = 0;                                   // as given to Commander
  std::string backend;                                           // Backend::identity()
  std::string backend_name = "onnxruntime", precision = "fp32";  // as requested, for the replay
  std::string transport;                                         // Transport::identity()
  RobotDescription robot;
  bool follows = false;  // other bundles may come
};

struct LoggerCounters {
  std::uint64_t events = 0;  // written
  std::uint64_t lost = 0;    // missing in the log, because a ring or the disk was full
  std::uint64_t bytes = 0;   // of the file
  bool failed = false;       // writing failed; `Logger::why` has the reason
};

/// Ring size for about two seconds of a busy run.
inline constexpr std::size_t kRingBytes = std::size_t{1} << 22;

class Logger {
 public:
  /// Open the file and write the description: `path` is a file *.mcap (refused if it exists) or a folder, in which a
  /// file named after robot and time is made. `rings` must outlive the logger. Orders start at 0 without a gap.
  /// Throws UserError.
  Logger(const std::filesystem::path& path, const LogInfo& info, std::vector<EventRing*> rings);
  /// Stops.
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;
  /// Start the thread. Throws UserError.
  void start();
  /// The network of this bundle may come next: its files are attached right before the event that it does. Any thread.
  void announce(std::shared_ptr<const Bundle> bundle);
  /// Write the content of the rings and close the file. Call it after the other threads have ended.
  void stop() noexcept;
  LoggerCounters counters() const noexcept;
  /// Why writing failed, after stop(); empty if it did not.
  std::string why() const;
  const std::filesystem::path& path() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace robot_rl

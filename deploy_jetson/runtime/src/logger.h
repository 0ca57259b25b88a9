// Writes what the loop did to an MCAP file, from a thread of its own at normal priority.
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

/// What a log says about its run; with it alone `robot-rl-infer --replay` can play it back.
struct LogInfo {
  const Bundle* bundle = nullptr;  // contract.json and policy.onnx are read from its folder and kept in the log
  Settings settings;               // as given to Commander
  std::uint64_t commander = 0;     // as given to Commander
  std::string backend;             // Backend::identity()
  std::string backend_name = "onnxruntime", precision = "fp32";  // what was asked for, to ask again
  std::string transport;                                         // Transport::identity()
  RobotDescription robot;
};

struct LoggerCounters {
  std::uint64_t events = 0;  // written
  std::uint64_t lost = 0;    // missing in the log: a ring was full, or the disk
  std::uint64_t bytes = 0;   // of the file
  bool failed = false;       // the file could not be written on; `Logger::why` says why
};

/// Ring size that holds about two seconds of a busy run.
inline constexpr std::size_t kRingBytes = std::size_t{1} << 22;

class Logger {
 public:
  /// Open the file and write what is known: `path` is a file *.mcap (refused where it is there) or a folder, in which a
  /// file named after robot and time is made. `rings` must outlive the logger. Orders start at 0 without a gap.
  /// Throws UserError.
  Logger(const std::filesystem::path& path, const LogInfo& info, std::vector<EventRing*> rings);
  /// Stops.
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;
  /// Start the thread. Throws UserError.
  void start();
  /// Write what the rings hold and close the file. Call it when the other threads are done.
  void stop() noexcept;
  LoggerCounters counters() const noexcept;
  /// Why writing failed, after stop(); empty where it did not.
  std::string why() const;
  const std::filesystem::path& path() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace robot_rl

// New weights while the robot runs: a thread looks for the next bundle, checks it and hands it to the policy's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend.h"
#include "bundle.h"
#include "handover.h"
#include "logger.h"
#include "loop.h"

namespace robot_rl {

/// What became of a bundle in a run.
struct BundleFate {
  std::string identity;  // empty: it could not be read
  std::string path;
  std::string refused;           // why it was not taken; empty: it was
  std::int64_t time_ns = 0;      // when it acted first, or was refused; 0: neither
  std::int64_t first_step = -1;  // the first control step with it; -1: none
};

struct FollowOptions {
  std::filesystem::path folder;     // with the file "next"; "current" and "refused" are written there
  std::filesystem::path signed_by;  // as of the first bundle
  BackendOptions backend;           // the chosen one: name and precision are not "auto"
  std::string backend_identity;     // Backend::identity() of the running one
  void (*say)(const std::string& line) = nullptr;
};

class Follower {
 public:
  /// `first`: the running bundle. `logger` may be null. All must outlive the follower.
  Follower(const FollowOptions& options, const Bundle& first, Loop& loop, Logger* logger);
  /// Ends the loop, too: its threads may use a network that belongs to this object.
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;
  /// Start the thread. Throws UserError.
  void start();
  /// End the thread, after the loop's; it finishes reading a bundle first.
  void stop() noexcept;
  /// What became of the bundles after the first, in order. After stop().
  const std::vector<BundleFate>& fates() const { return fates_; }

 private:
  struct Successor;
  void run() noexcept;
  void look();
  bool read_next(std::string& text);
  void adopt(const std::string& text);
  std::unique_ptr<Successor> load(const std::string& text, std::string& identity) const;
  void hand_over(std::unique_ptr<Successor> next, const std::string& path);
  void refuse(const std::string& path, const std::string& identity, const std::string& why);
  void write_current(const std::string& path, const Handover& handover) const;
  void write_file(const char* name, const std::string& line) const;

  FollowOptions options_;
  const Bundle* first_;
  Loop* loop_;
  Logger* logger_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  bool first_shown_ = false;
  std::string current_;                 // identity of the bundle that acts
  std::unique_ptr<Successor> running_;  // nullptr: the first
  std::unique_ptr<Successor> offered_;  // handed over, but the loop ended before it acted
  struct Seen {
    std::uint64_t inode = 0;
    std::int64_t time_ns = 0, size = -1;
    bool operator==(const Seen&) const = default;
  } seen_;  // the file "next" as it was last read
  std::vector<BundleFate> fates_;
};

}  // namespace robot_rl

// The thread that writes commands to CycloneDDS. The library allocates memory and takes locks without priority
// inheritance in every write, so the loop's threads, which hold a lock of their own meanwhile, only hand a command
// over.
#pragma once

#include <semaphore.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

#include "dds_codec.h"
#include "transport_parts.h"
#include "types.h"

namespace robot_rl {

class DdsSender {
 public:
  /// `commands`, `infos`: the writers of both topics. `codec`: its command belongs to this thread from here on. All
  /// must outlive the sender. Throws UserError.
  DdsSender(Codec& codec, dds_entity_t commands, dds_entity_t infos, std::uint64_t commander, AtomicCounters& counters);
  /// Writes what was handed over before.
  ~DdsSender();
  DdsSender(const DdsSender&) = delete;
  DdsSender& operator=(const DdsSender&) = delete;
  /// Hand a command over; callers ensure that one thread does at a time. False: the library refused the last one that
  /// it finished. Waits only if kSlots commands are pending: the library hangs then, and the caller has to hang with
  /// it, so that the watchdog takes over.
  bool pass(const LowCommand& command) noexcept;

 private:
  static constexpr unsigned kSlots = 2;
  /// A command and when it was handed over.
  struct Slot {
    LowCommand command;  // one without joints ends the thread
    std::int64_t passed_ns = 0;
  };
  void run() noexcept;
  bool write(const LowCommand& command) noexcept;

  Codec& codec_;
  dds_entity_t commands_, infos_;
  std::uint64_t commander_;
  AtomicCounters& counters_;
  std::array<Slot, kSlots> slots_{};
  unsigned passed_ = 0, written_ = 0;  // each belongs to one thread
  sem_t free_, pending_;
  std::atomic<bool> accepted_{true};
  std::thread thread_;
};

}  // namespace robot_rl

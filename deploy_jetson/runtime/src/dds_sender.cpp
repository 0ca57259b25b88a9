#include "dds_sender.h"

#include <sys/prctl.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "dds_node.h"
#include "error.h"
#include "robot_rl.h"
#include "rt.h"

namespace robot_rl {
namespace {

constexpr int kSender = 90;                    // above the watchdog, which commands through such a thread as well
constexpr std::int64_t kStaleNs = 20'000'000;  // a command that had to wait for so long is not written any more

void take(sem_t& semaphore) noexcept {
  while (sem_wait(&semaphore) != 0 && errno == EINTR) {
  }
}

}  // namespace

DdsSender::DdsSender(Codec& codec, dds_entity_t commands, dds_entity_t infos, std::uint64_t commander,
                     AtomicCounters& counters)
    : codec_(codec), commands_(commands), infos_(infos), commander_(commander), counters_(counters) {
  sem_init(&free_, 0, kSlots);
  sem_init(&pending_, 0, 0);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw UserError(std::string("transport: DDS: a thread cannot be started: ") + error.what());
  }
}

DdsSender::~DdsSender() {
  take(free_);
  slots_[passed_++ % kSlots].command.joints = 0;
  sem_post(&pending_);
  thread_.join();
  sem_destroy(&free_);
  sem_destroy(&pending_);
}

bool DdsSender::pass(const LowCommand& command) noexcept {
  take(free_);
  slots_[passed_++ % kSlots] = {command, now_ns()};
  sem_post(&pending_);
  return accepted_.load(std::memory_order_relaxed);
}

void DdsSender::run() noexcept {
  prctl(PR_SET_NAME, "dds-send", 0, 0, 0);
  std::string why;
  set_fifo(kSender, why);  // that it is not permitted is said of the loop's threads
  prefault_stack();
  for (;;) {
    take(pending_);
    const auto& [command, passed_ns] = slots_[written_++ % kSlots];
    if (command.joints == 0) return;
    const auto before = allocations();
    // After the library hung, the watchdog has damped the robot meanwhile.
    const bool sent = now_ns() - passed_ns < kStaleNs && write(command);
    counters_.allocations.fetch_add(allocations() - before, std::memory_order_relaxed);
    accepted_.store(sent, std::memory_order_relaxed);
    count(sent ? counters_.commands : counters_.send_failed);
    sem_post(&free_);
  }
}

/// The motors do not wait for the information that their message has no field for.
bool DdsSender::write(const LowCommand& command) noexcept {
  codec_.write_command(command);
  const bool sent = dds_write(commands_, codec_.command()) == DDS_RETCODE_OK;
  const robot_rl_dds_CommandInfo info = {command.sequence,
                                         commander_,
                                         command.state_sequence,
                                         command.state_robot_time_ns,
                                         command.state_age_ns,
                                         command.send_time_ns,
                                         codec_.command_crc(),
                                         static_cast<std::uint8_t>(command.phase),
                                         static_cast<std::uint8_t>(command.fault),
                                         static_cast<std::uint8_t>(command.from_policy)};
  dds_write(infos_, &info);
  return sent;
}

}  // namespace robot_rl

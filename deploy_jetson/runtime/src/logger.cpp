#include "logger.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "cdr.h"
#include "error.h"
#include "log_format.h"
#include "mcap.h"
#include "records.h"
#include "replay.h"
#include "settings_table.h"

namespace robot_rl {

namespace {

constexpr std::int64_t kPauseNs = 10'000'000;      // between reads of the rings
constexpr std::int64_t kFlushNs = 80'000'000;      // at most so much is lost if the program is killed
constexpr std::int64_t kPatienceNs = 500'000'000;  // time to wait for a missing order number

std::int64_t clock_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

/// The file for `path`: itself, or in a folder a name made of robot and time.
std::filesystem::path file_for(const std::filesystem::path& path, const std::string& robot) {
  std::error_code code;
  if (path.extension() == ".mcap") {
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), code);
    return path;
  }
  std::filesystem::create_directories(path, code);
  char stamp[32] = {};
  const auto now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &parts);
  const std::string stem = robot + "-" + stamp;
  auto file = path / (stem + ".mcap");
  for (int k = 2; std::filesystem::exists(file, code); ++k) file = path / (stem + "-" + std::to_string(k) + ".mcap");
  return file;
}

/// The settings by name, in shortest form that reads back to the same bits; one that is not set is left out.
McapMap settings_map(Settings settings) {
  McapMap map;
  for (const auto& row : setting_table()) {
    const auto slot = row.slot(settings);
    std::optional<double> value;
    if (const auto* number = std::get_if<double*>(&slot)) value = **number;
    if (const auto* whole = std::get_if<int*>(&slot)) value = **whole;
    if (const auto* maybe = std::get_if<std::optional<int>*>(&slot)) {
      if (**maybe) value = ***maybe;
    }
    char text[40];
    if (row.explores && settings.explore_std == 0) continue;  // such a log is as it was before there was exploration
    if (value) map[std::string(row.name)] = {text, std::to_chars(text, text + sizeof text, *value).ptr};
  }
  return map;
}

}  // namespace

struct Logger::Parts {
  Parts(const std::filesystem::path& where, const LogInfo& info, std::vector<EventRing*> all)
      : path(file_for(where, info.bundle->contract.robot)), contract(&info.bundle->contract), rings(std::move(all)) {
    constexpr std::size_t kMost = (kMaxEvent - sizeof(PolicyOutput)) / sizeof(float) - kMaxCommand - 1;
    if (static_cast<std::size_t>(contract->observation_size) > kMost) {
      throw UserError("--log: an observation of " + std::to_string(contract->observation_size) +
                      " numbers does not fit in an event, which has room for " + std::to_string(kMost));
    }
    realtime_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    payload.resize(kMaxEvent);
    std::error_code code;
    try {
      file.emplace(path, "ros2", "robot-rl-runtime");
      begin(info);
    } catch (const std::system_error& error) {
      if (file) std::filesystem::remove(path, code);  // nothing of the run is in it
      if (is_full(error.code())) throw std::system_error(error.code(), "--log=" + path.string());
      throw UserError("--log=" + path.string() + ": " + error.code().message() +
                      "; name a folder or a new file *.mcap that can be written");
    }
  }

  void begin(const LogInfo& info) {
    const bool newer = info.follows || info.settings.explore_std > 0;
    McapMap run = {{"format", kLogFormat},
                   {"version", newer ? kLogVersion : kLogVersionBefore},
                   {"robot", contract->robot},
                   {"bundle", info.bundle->path.string()},
                   {"bundle_identity", info.bundle->identity},
                   {"training_run", contract->training.run_id},
                   {"backend", info.backend},
                   {"processor", processor()},
                   {"backend_name", info.backend_name},
                   {"precision", info.precision},
                   {"transport", info.transport},
                   {"commander", std::to_string(info.commander)},
                   {"realtime_offset_ns", std::to_string(realtime_ns)}};
    std::string joints;
    for (const auto& joint : contract->joints) joints += (joints.empty() ? "" : " ") + joint.name;
    run["joints"] = joints;
    joints.clear();
    for (const auto& joint : info.robot.joints) joints += (joints.empty() ? "" : " ") + joint;
    run["robot_joints"] = joints;
    file->metadata(kLogRun, run);
    file->metadata(kLogSettings, settings_map(info.settings));
    attach(*info.bundle, "");
    for (std::size_t k = 0; k < kLogChannels.size(); ++k) {
      CdrDefinition definition;
      LogEvent none;
      log_fields(definition, k, none, contract->measured_size > 0);
      channels[k] =
          file->add_channel(kLogChannels[k].topic, kLogChannels[k].schema, "ros2msg", definition.definition(), "cdr");
    }
  }

  void attach(const Bundle& bundle, const std::string& suffix) {
    const auto now = static_cast<std::uint64_t>(clock_ns(CLOCK_REALTIME));
    const auto text = std::as_bytes(std::span(bundle.contract_text));
    file->attachment(std::string(kLogContract) + suffix, "application/json", now, text);
    file->attachment(std::string(kLogModel) + suffix, "application/octet-stream", now, bundle.model);
  }

  /// The files of the bundle of a swap come before its event.
  void attach_announced(const std::string& identity) {
    std::shared_ptr<const Bundle> bundle;
    {
      const std::lock_guard hold(lock);
      while (!announced.empty() && !bundle) {
        if (announced.front()->identity == identity) bundle = announced.front();
        announced.erase(announced.begin());
      }
    }
    if (bundle) attach(*bundle, attachment_suffix(identity));
  }

  void run() noexcept {
    sched_param normal{};
    pthread_setschedparam(pthread_self(), SCHED_OTHER, &normal);
    pthread_setname_np(pthread_self(), "logger");
    std::int64_t flushed = clock_ns(CLOCK_MONOTONIC);
    while (!stopping.load(std::memory_order_acquire)) {
      const timespec pause{0, kPauseNs};
      nanosleep(&pause, nullptr);
      guarded([&] {
        drain(false);
        const auto now = clock_ns(CLOCK_MONOTONIC);
        if (now - flushed < kFlushNs) return;
        file->flush();
        flushed = now;
      });
    }
    guarded([&] {
      drain(true);
      McapMap end = {{"events", std::to_string(events.load())}, {"lost", std::to_string(lost.load())}};
      file->metadata("end", end);
      file->finish();
    });
  }

  /// After a failure nothing is written any more, but the rings are still emptied.
  template <class Work>
  void guarded(Work&& work) noexcept {
    try {
      if (!failed) return work();
    } catch (const std::exception& error) {
      const std::lock_guard hold(lock);
      complaint = one_line(path.string() + ": " + error.what());
      failed = true;
      announced.clear();
    }
    EventHeader header;
    for (auto* ring : rings) {
      while (ring->pop(header, payload)) lost += 1;
    }
  }

  /// Write the content of the rings in the order of the calls. Wait for an order number that is missing, unless
  /// every ring is past it, `last` is set or the waiting time is over: then it was lost.
  void drain(bool last) {
    for (;;) {
      EventRing* next = nullptr;
      EventHeader lowest, header;
      bool all = true;
      for (auto* ring : rings) {
        if (!ring->peek(header)) {
          all = false;
        } else if (next == nullptr || header.order < lowest.order) {
          next = ring;
          lowest = header;
        }
      }
      if (next == nullptr) return;
      if (lowest.order > expected && !all && !last) {
        const auto now = clock_ns(CLOCK_MONOTONIC);
        if (waiting_since == 0) waiting_since = now;
        if (now - waiting_since < kPatienceNs) return;
      }
      waiting_since = 0;
      if (lowest.order > expected) lost += lowest.order - expected;
      expected = std::max(expected, lowest.order + 1);
      next->pop(lowest, payload);
      write(lowest);
    }
  }

  void write(const EventHeader& header) {
    auto& e = event;
    e.order = header.order;
    e.time_ns = header.time_ns;
    e.kind = header.kind;
    if (!unpack(std::span(payload).first(std::min<std::size_t>(header.bytes, payload.size())))) {
      lost += 1;
      return;
    }
    if (header.kind == EventKind::kSwap) attach_announced(swapped_identity(e.text));
    const auto channel = channel_of(header.kind);
    message.clear();
    log_fields(message, channel, e, contract->measured_size > 0);
    const auto time = static_cast<std::uint64_t>(std::max<std::int64_t>(0, header.time_ns + realtime_ns));
    file->message(channels[channel], static_cast<std::uint32_t>(header.order), time, message.bytes());
    events += 1;
    bytes = file->bytes();
  }

  bool unpack(std::span<const std::byte> bytes_in) {
    auto& e = event;
    std::span<const float> command, observation;
    e.finding = {};
    e.text.clear();
    switch (e.kind) {
      case EventKind::kState: return unpack_state(bytes_in, e.state);
      case EventKind::kOperator: return unpack_operator(bytes_in, e.input);
      case EventKind::kPolicyStep:
        if (!unpack_policy(bytes_in, e.output, command, observation)) return false;
        e.command.assign(command.begin(), command.end());
        e.observation.assign(observation.begin(), observation.end());
        return true;
      case EventKind::kCommand: return unpack_command(bytes_in, e.sent);
      case EventKind::kFault:
        if (!unpack_fault(bytes_in, e.finding)) return false;
        e.text = describe(e.finding, *contract);
        return true;
      case EventKind::kMissedDeadline: e.text = "a control period passed without an output of the policy"; return true;
      case EventKind::kReady: e.text = "ready: bundle, backend and robot passed their checks"; return true;
      case EventKind::kSwap: {
        Identity identity{};
        if (!unpack_swap(bytes_in, identity)) return false;
        e.text = swap_text({identity.data(), identity.size()});
        return true;
      }
    }
    return false;
  }

  std::filesystem::path path;
  const Contract* contract;
  std::vector<EventRing*> rings;
  std::optional<McapWriter> file;
  std::array<std::uint16_t, kLogChannels.size()> channels{};
  std::int64_t realtime_ns = 0, waiting_since = 0;
  std::uint64_t expected = 0;
  std::vector<std::byte> payload;
  LogEvent event;
  CdrWriter message;
  std::thread thread;
  std::atomic<bool> stopping{false}, failed{false};
  std::atomic<std::uint64_t> events{0}, lost{0}, bytes{0};
  mutable std::mutex lock;
  std::string complaint;
  std::vector<std::shared_ptr<const Bundle>> announced;  // under the lock
};

Logger::Logger(const std::filesystem::path& path, const LogInfo& info, std::vector<EventRing*> rings)
    : parts_(std::make_unique<Parts>(path, info, std::move(rings))) {}

Logger::~Logger() { stop(); }

void Logger::start() {
  try {
    parts_->thread = std::thread([parts = parts_.get()] { parts->run(); });
  } catch (const std::system_error& error) {
    throw UserError(std::string("--log: no thread for the logger: ") + error.what());
  }
}

void Logger::announce(std::shared_ptr<const Bundle> bundle) {
  const std::lock_guard hold(parts_->lock);
  if (!parts_->failed) parts_->announced.push_back(std::move(bundle));
}

void Logger::stop() noexcept {
  parts_->stopping.store(true, std::memory_order_release);
  if (parts_->thread.joinable()) parts_->thread.join();
}

LoggerCounters Logger::counters() const noexcept {
  return {parts_->events, parts_->lost, parts_->bytes, parts_->failed};
}

std::string Logger::why() const {
  const std::lock_guard hold(parts_->lock);
  return parts_->complaint;
}

const std::filesystem::path& Logger::path() const { return parts_->path; }

}  // namespace robot_rl

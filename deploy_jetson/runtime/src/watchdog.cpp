#include "watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "rt.h"
#include "transport.h"

namespace robot_rl {

namespace {

constexpr std::int64_t kDampNs = 10'000'000'000;  // after the last heartbeat
constexpr std::int64_t kSilenceNs = 1'000'000'000;  // of the watchdog; a stopped one is as good as dead
constexpr std::int64_t kGapNs = 200'000'000;        // between two looks: this process was not awake either
constexpr std::int64_t kDrainNs = 20'000'000;     // how often received states are discarded

enum Stage : int { kStarting = 0, kReady = 1, kFailed = 2 };

std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

/// Shared by both processes; each field has one writer.
struct Watchdog::Page {
  // The main process.
  std::atomic<std::int64_t> beat_ns{0};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<bool> armed{false}, bye{false};
  std::atomic<std::uint32_t> acknowledged{0};  // takeovers that it has acknowledged; it damps by itself since
  // The watchdog.
  std::atomic<int> stage{kStarting};
  std::atomic<std::uint32_t> takeovers{0};
  std::atomic<std::int64_t> longest_ns{0}, silence_ns{0}, life_ns{0};
  char line[1024] = {};  // why it failed, or what was not permitted
};

namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

/// The child's side.
class Guard {
 public:
  Guard(const Contract& contract, const Settings& settings, const WatchdogOptions& options, Watchdog::Page& page,
        int pipe)
      : contract_(contract), settings_(settings), options_(options), page_(page), pipe_(pipe) {}

  void prepare() {
    // It only sends: with kp = 0 the measured positions do not matter, and the robot need not send each state twice.
    const std::string more = options_.transport.find('?') == std::string::npos ? "?states=0" : "&states=0";
    transport_ = make_transport(options_.transport + more, "", options_.commander);
    transport_->connect(contract_, options_.connect_timeout_s);
    std::string why, notes;
    if (!lock_memory(why)) notes += why;
    if (options_.fifo > 0 && !set_fifo(options_.fifo, why)) notes += (notes.empty() ? "" : "; ") + why;
    sharpen_timers();
    prefault_stack();
    fill_command();
    tell(notes, kReady);
  }

  void tell(const std::string& line, Stage stage) {
    std::strncpy(page_.line, line.c_str(), sizeof page_.line - 1);
    page_.stage.store(stage, std::memory_order_release);
  }

  /// Run until the main process says bye, or is dead and was damped for long enough.
  void watch() {
    const std::int64_t period = to_ns(settings_.writer_period_s);
    std::int64_t deadline = now_ns() + period;
    while (!page_.bye.load(std::memory_order_acquire)) {
      if (!dead_) dead_ = pipe_closed(deadline);
      if (dead_ && page_.bye.load(std::memory_order_acquire)) return;  // it said bye before it closed the pipe
      if (dead_) sleep_until(acting_ ? deadline : 0);
      const std::int64_t now = now_ns();
      page_.life_ns.store(now, std::memory_order_relaxed);
      // If this process itself was delayed, the other one may have been, too: its silence counts from here.
      if (now - looked_ns_ > 3 * period) awake_ns_ = now;
      looked_ns_ = now;
      if (!page_.armed.load(std::memory_order_acquire)) {
        if (dead_) return;  // it never commanded
      } else if (!look(now)) {
        return;
      }
      drain(now);
      if (deadline <= now) deadline = std::max(deadline + period, now + period / 2);
    }
  }

 private:
  /// Wait until the deadline; returns whether the pipe closed before.
  bool pipe_closed(std::int64_t deadline) const {
    const std::int64_t left = std::max<std::int64_t>(deadline - now_ns(), 0);
    const timespec time = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    pollfd entry{pipe_, POLLIN, 0};
    return ppoll(&entry, 1, &time, nullptr) > 0 && (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
  }

  /// Send if a command is due; false: the end.
  bool look(std::int64_t now) {
    const std::int64_t beat = page_.beat_ns.load(std::memory_order_acquire);
    const std::int64_t silence = now - beat;
    if (!dead_ && silence > page_.longest_ns.load(std::memory_order_relaxed)) {
      page_.longest_ns.store(silence, std::memory_order_relaxed);
    }
    const bool silent = now - std::max(beat, awake_ns_) > to_ns(options_.timeout_s);
    if (!acting_ && (dead_ || silent)) take_over(silence, now);
    if (!acting_) return true;
    // Both damp now; this process stops if the other one is awake and has acknowledged the takeover.
    if (!dead_ && !silent && page_.acknowledged.load(std::memory_order_acquire) == page_.takeovers.load()) {
      acting_ = false;
      return true;
    }
    if (!dead_ && !silent) last_life_ns_ = now;
    if (now - last_life_ns_ > kDampNs) {
      if (dead_) return false;
      return true;  // it hangs, and was damped for long enough; it may still wake up
    }
    send(now);
    return true;
  }

  void take_over(std::int64_t silence, std::int64_t now) {
    acting_ = true;
    last_life_ns_ = now;
    page_.silence_ns.store(silence, std::memory_order_relaxed);
    page_.takeovers.fetch_add(1, std::memory_order_release);
    command_.sequence = page_.sequence.load(std::memory_order_acquire);
    send(now);  // first the robot, then the line
    char line[160];
    const char* what = dead_ ? "died, silent for" : "is silent for";
    const int size =
        std::snprintf(line, sizeof line, "robot-rl-infer: watchdog: the main process %s %.1f ms; damping\n", what,
                      static_cast<double>(silence) * 1e-6);
    say_line({line, static_cast<std::size_t>(size)}, 0);
  }

  void send(std::int64_t now) {
    // The main process may have used higher numbers: it woke up and damps, too.
    command_.sequence = std::max(command_.sequence, page_.sequence.load(std::memory_order_acquire)) + 1;
    command_.send_time_ns = now;
    command_.fault = dead_ ? Fault::kInternal : Fault::kStalled;
    transport_->send(command_);
  }

  void drain(std::int64_t now) {
    if (!acting_ && now - drained_ns_ < kDrainNs) return;
    drained_ns_ = now;
    transport_->take_state(state_);
  }

  void fill_command() {
    command_.commander = options_.commander;
    command_.joints = static_cast<std::int32_t>(contract_.joints.size());
    command_.phase = Phase::kDamping;
    for (std::size_t i = 0; i < contract_.joints.size(); ++i) {
      const JointSpec& joint = contract_.joints[i];
      command_.kd[i] = joint.effort_limit == 0 ? 0 : static_cast<float>(joint.kd * settings_.damping_scale);
    }
  }

  const Contract& contract_;
  const Settings& settings_;
  const WatchdogOptions& options_;
  Watchdog::Page& page_;
  int pipe_;
  std::unique_ptr<Transport> transport_;
  LowState state_;
  LowCommand command_;
  bool dead_ = false, acting_ = false;
  std::int64_t last_life_ns_ = 0, drained_ns_ = 0, looked_ns_ = 0, awake_ns_ = 0;
};

/// The child process from fork to end.
[[noreturn]] void guard(const Contract& contract, const Settings& settings, const WatchdogOptions& options,
                        Watchdog::Page& page, int pipe) {
  prctl(PR_SET_NAME, "robot-rl-watch", 0, 0, 0);
  // The main process handles a stop of the whole group, such as Ctrl-Z; it says bye, or is silent.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU}) {
    signal(number, SIG_IGN);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // while it connects, there is nothing to damp
  int code = 0;
  {
    Guard watch(contract, settings, options, page, pipe);
    try {
      watch.prepare();
      prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
      watch.watch();
    } catch (const std::exception& error) {
      watch.tell(error.what(), kFailed);
      code = 1;
    }
  }
  _exit(code);
}

}  // namespace

Watchdog::Watchdog(const Contract& contract, const Settings& settings, const WatchdogOptions& options)
    : timeout_ns_(to_ns(options.timeout_s)) {
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw UserError(std::string("watchdog: no shared memory: ") + std::strerror(errno));
  page_ = new (memory) Page;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    munmap(page_, sizeof(Page));
    throw UserError(std::string("watchdog: no pipe: ") + std::strerror(errno));
  }
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    guard(contract, settings, options, *page_, ends[0]);
  }
  close(ends[0]);
  pipe_ = ends[1];
  if (pid_ > 0) return;
  const int error = errno;
  close(pipe_);
  munmap(page_, sizeof(Page));
  throw UserError(std::string("watchdog: cannot start a process: ") + std::strerror(error));
}

Watchdog::~Watchdog() {
  page_->bye.store(true, std::memory_order_release);
  close(pipe_);
  if (!ended_) {
    // It reads the page every period; if it cannot (it still connects), it is killed.
    for (int i = 0; i < 200 && alive(); ++i) sleep_until(now_ns() + 5'000'000);
    if (!ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  munmap(page_, sizeof(Page));
}

void Watchdog::wait_ready(double timeout_s, std::string& note) {
  const std::int64_t end = now_ns() + to_ns(timeout_s);
  while (page_->stage.load(std::memory_order_acquire) == kStarting && now_ns() < end && alive()) {
    sleep_until(now_ns() + 2'000'000);
  }
  const int stage = page_->stage.load(std::memory_order_acquire);
  note = page_->line;
  if (stage == kReady) return;
  throw UserError("watchdog: " + (stage == kFailed ? note : std::string("it does not get ready")));
}

void Watchdog::arm() noexcept {
  page_->beat_ns.store(now_ns(), std::memory_order_release);
  page_->armed.store(true, std::memory_order_release);
}

void Watchdog::beat(std::int64_t now_ns, std::uint64_t sequence) noexcept {
  page_->sequence.store(sequence, std::memory_order_release);
  page_->beat_ns.store(now_ns, std::memory_order_release);
}

std::uint32_t Watchdog::takeovers() const noexcept { return page_->takeovers.load(std::memory_order_acquire); }

void Watchdog::acknowledge(std::uint32_t takeovers) noexcept {
  page_->acknowledged.store(takeovers, std::memory_order_release);
}

std::int64_t Watchdog::silence_ns(std::int64_t now_ns) const noexcept {
  return std::max(page_->silence_ns.load(std::memory_order_relaxed), now_ns - page_->beat_ns.load());
}

std::int64_t Watchdog::longest_silence_ns() const noexcept { return page_->longest_ns.load(std::memory_order_relaxed); }

bool Watchdog::alive() noexcept {
  if (!ended_) {
    const pid_t got = waitpid(pid_, nullptr, WNOHANG);
    ended_ = got == pid_ || (got < 0 && errno == ECHILD);
  }
  return !ended_;
}

bool Watchdog::awake(std::int64_t now_ns) noexcept {
  if (now_ns - looked_ns_ > kGapNs) awake_ns_ = now_ns;
  looked_ns_ = now_ns;
  return now_ns - std::max(page_->life_ns.load(std::memory_order_relaxed), awake_ns_) < kSilenceNs;
}

}  // namespace robot_rl

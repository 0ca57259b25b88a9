// The robot's run: bundle, watchdog, backend, connection, threads, and an end that leaves the robot damped.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <random>
#include <thread>

#include "bundle.h"
#include "follow.h"
#include "json.h"
#include "logger.h"
#include "loop.h"
#include "options.h"
#include "team_link.h"
#include "report.h"
#include "rt.h"
#include "watchdog.h"

namespace robot_rl {

namespace {

constexpr std::int64_t kLookNs = 20'000'000;  // how often the main thread checks the others
constexpr std::int64_t kListenNs = 300'000'000;  // for another commander
constexpr int kPatienceMs = 50;                // for the reader of stderr

void say(const std::string& line) { say_line("robot-rl-infer: " + one_line(line) + "\n", kPatienceMs); }

std::uint64_t draw_commander() {
  std::random_device device;
  std::uint64_t drawn = 0;
  while (drawn == 0) drawn = static_cast<std::uint64_t>(device()) << 32 | device();
  return drawn;
}

/// Signals that end a run; blocked in every thread started from here on and received by one.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, number);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_IGN);  // the writer gets an error instead
    early_ = std::thread([this] { leave_early(); });
  }
  ~StopSignals() { begin(); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// Up to here a signal ended the program at once; from here on `wait` receives it.
  void begin() {
    begun_.store(true, std::memory_order_release);
    if (early_.joinable()) early_.join();
  }
  /// Wait for this duration; returns the received signal, 0 for none.
  int wait(std::int64_t ns) const {
    const timespec time = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    const int got = sigtimedwait(&set_, nullptr, &time);
    return got > 0 ? got : 0;
  }

 private:
  /// While backend and connection are set up, nothing was commanded yet: there is nothing to damp.
  void leave_early() const {
    while (!begun_.load(std::memory_order_acquire)) {
      const int number = wait(kLookNs);
      if (number == 0) continue;
      say(std::string("stopped by SIG") + sigabbrev_np(number) + " before it began");
      _exit(static_cast<int>(ExitCode::kDone));
    }
  }

  sigset_t set_;
  std::atomic<bool> begun_{false};
  std::thread early_;
};

class Run {
 public:
  explicit Run(const Options& given) : options_(given) {
    if (options_.commander == 0) options_.commander = draw_commander();
  }

  int run() {
    bundle_ = read_bundle(options_.bundle, options_.signed_by);
    say("bundle " + bundle_->identity.substr(0, 12) + " of " + bundle_->contract.robot + ", run " +
        bundle_->contract.training.run_id);
    start_watchdog();
    signals_.emplace();  // its thread starts after the fork
    load_backend();
    connect();
    lock();
    LoopOptions how;
    how.fifo_writer = options_.fifo_writer;
    how.fifo_policy = options_.fifo_policy;
    how.cpu_writer = options_.cpu_writer;
    how.cpu_policy = options_.cpu_policy;
    how.by_itself = options_.operator_address == "none";
    how.rehearse = options_.rehearse;
    how.log = !options_.log.empty();
    how.commander = options_.commander;
    loop_.emplace(bundle_->contract, options_.settings, *transport_, backend_.get(), watchdog_.get(), how);
    if (how.log) start_logger();
    say_exploration();
    for (const auto& line : loop_->prepare(options_.connect_timeout_s)) refuse_or_say(line);
    signals_->begin();
    facts_.begin_ns = now_ns();
    loop_->go();
    if (!options_.follow.empty()) start_follower();
    supervise();
    finish();
    return end();
  }

 private:
  void refuse_or_say(const std::string& line) {
    facts_.not_permitted.push_back(line);
    if (options_.require_realtime) throw UserError("--require-realtime: " + line);
    say("warning: " + line);
  }

  void start_watchdog() {
    if (!options_.watchdog) return;
    WatchdogOptions how;
    how.transport = options_.transport;
    how.commander = options_.commander;
    how.timeout_s = options_.watchdog_s;
    how.connect_timeout_s = options_.connect_timeout_s;
    how.fifo = options_.fifo_writer > 0 ? std::min(options_.fifo_writer + 5, 99) : 0;
    watchdog_ = std::make_unique<Watchdog>(bundle_->contract, options_.settings, how);
    facts_.watchdog = true;
  }

  /// A network that fails its golden sequence must not move the robot: it is damped, and the line has the reason.
  void load_backend() {
    try {
      backend_ = make_backend(*bundle_, options_.backend, facts_.backend_why, &chosen_);
      facts_.backend = backend_->identity();
      say("backend " + (facts_.backend_why.empty() ? facts_.backend : facts_.backend_why));
    } catch (const ContractError& error) {
      facts_.refused = error.what();
      say("refused, staying in damping: " + facts_.refused);
    }
  }

  void connect() {
    const bool local = options_.operator_address == "none" || options_.operator_address == "robot";
    transport_ = make_transport(options_.transport, local ? "" : options_.operator_address, options_.commander);
    join_team();
    robot_ = transport_->connect(bundle_->contract, options_.connect_timeout_s);
    facts_.transport = transport_->identity();
    say("robot " + robot_.robot + " at " + facts_.transport + ", operator " + options_.operator_address);
    if (!options_.take_over && !options_.settings.steps_per_state) refuse_second();
    if (!watchdog_) return;
    std::string note;
    watchdog_->wait_ready(options_.connect_timeout_s + 1, note);
    if (!note.empty()) refuse_or_say("watchdog: " + note);
  }

  /// Before the first command: a robot that obeys somebody else is not taken from him. A commander that went away is
  /// forgotten within 0.2 s by the robot's end.
  void refuse_second() {
    LowState state;
    bool is_heard = transport_->second_commander();
    for (const auto end = now_ns() + kListenNs; now_ns() < end;) {
      transport_->wait(end);
      if (!transport_->take_state(state)) continue;
      const bool is_other = state.commander != 0 && state.commander != options_.commander;
      is_heard = is_other || transport_->second_commander();
      if (!is_heard) return;
    }
    if (!is_heard) return;
    throw UserError(
        "robot: another program commands it, or for 10 s the watchdog of a run that was killed; stop that one, or give "
        "--take-over");
  }

  /// With messages in the contract: exchange them with the other robots of the team.
  void join_team() {
    const bool given = !options_.team_name.empty() || !options_.team_listen.empty() || !options_.team_send.empty();
    if (bundle_->contract.messages.empty()) {
      if (given) {
        throw UserError("--team-name, --team-listen, --team-send: the bundle has no messages between robots; "
                        "remove them");
      }
      return;
    }
    auto team_link = std::make_unique<TeamLink>(
        std::move(transport_), bundle_->contract,
        TeamLinkOptions{options_.team_name, options_.team_listen, options_.team_send});
    team_link_ = team_link.get();
    transport_ = std::move(team_link);
    if (options_.team_listen.empty()) {
      say("warning: it receives no messages of other robots; give --team-listen udp:HOST:PORT");
    }
    if (options_.team_send.empty()) {
      say("warning: it sends the other robots no messages; give --team-send udp:HOST:PORT,...");
    }
  }

  void lock() {
    std::string why;
    facts_.memory_locked = lock_memory(why);
    if (!facts_.memory_locked) refuse_or_say(why);
    awake_.emplace();
    facts_.cpus_awake = awake_->held();
  }

  void say_exploration() const {
    const Settings& settings = options_.settings;
    if (settings.explore_std == 0) return;
    say("explores: normal noise of std " + json_number(settings.explore_std) + " on every action, seed " +
        std::to_string(settings.explore_seed));
  }

  void start_logger() {
    LogInfo info;
    info.bundle = bundle_.get();
    info.settings = options_.settings;
    info.commander = options_.commander;
    info.backend = facts_.backend;
    info.backend_name = options_.backend.name;
    info.precision = options_.backend.precision;
    info.transport = facts_.transport;
    info.robot = robot_;
    info.follows = !options_.follow.empty();
    logger_ = std::make_unique<Logger>(options_.log, info, loop_->rings());
    logger_->start();
    facts_.log_path = logger_->path().string();
    say("log " + facts_.log_path);
  }

  void start_follower() {
    if (!backend_) {
      say("warning: --follow: no bundle takes over from one that was refused");
      return;
    }
    follower_ =
        std::make_unique<Follower>(FollowOptions{options_.follow, options_.signed_by, chosen_, facts_.backend, &say},
                                   *bundle_, *loop_, logger_.get());
    follower_->start();
  }

  /// Report changes until a signal or the end of the time.
  void supervise() {
    const auto length = static_cast<std::int64_t>(options_.seconds * 1e9);
    for (;;) {
      const int signal = signals_->wait(kLookNs);
      show_changes();
      look_at_log();
      look_at_team();
      if (signal != 0) {
        say(std::string("stopped by SIG") + sigabbrev_np(signal));
        return;
      }
      if (length > 0 && now_ns() - facts_.begin_ns >= length) return;
      look_at_watchdog();
    }
  }

  /// Damp once it is dead, or stopped, which is as good as dead: nobody would damp for this process.
  void look_at_watchdog() {
    if (!watchdog_ || !facts_.watchdog) return;
    const bool is_alive = watchdog_->alive();
    if (is_alive && watchdog_->awake(now_ns())) return;
    facts_.watchdog = false;
    say(is_alive ? "the watchdog is silent; damping" : "the watchdog died; damping");
    loop_->fail(Fault::kInternal);
  }

  /// Report once that the log failed; the robot continues.
  void look_at_log() {
    if (log_failed_ || !logger_ || !logger_->counters().failed) return;
    log_failed_ = true;
    say("the log is incomplete: " + logger_->why());
  }

  /// Report once that another robot's messages are not those of this bundle.
  void look_at_team() {
    const std::string line = team_link_ != nullptr && !mismatch_shown_ ? team_link_->mismatch() : "";
    if (line.empty()) return;
    mismatch_shown_ = true;
    say("warning: " + line);
  }

  void show_changes() {
    const LoopStatus status = loop_->status();
    const std::uint64_t kept = std::min<std::uint64_t>(status.changes, LoopStatus::kChanges);
    shown_ = std::max(shown_, status.changes - kept);
    for (; shown_ < status.changes; ++shown_) {
      const Change& change = status.change[shown_ % LoopStatus::kChanges];
      if (facts_.changes.size() < 10'000) facts_.changes.push_back(change);
      char head[64];
      std::snprintf(head, sizeof head, "%.3f s %s", static_cast<double>(change.time_ns - facts_.begin_ns) * 1e-9,
                    name_of(change.phase));
      say(head + (change.finding ? ": " + describe(change.finding, bundle_->contract) : std::string()));
    }
    facts_.fault = status.finding.fault;
  }

  void finish() {
    facts_.end_ns = now_ns();
    if (watchdog_) {
      facts_.watchdog_takeovers = watchdog_->takeovers();
      facts_.watchdog_longest_silence_ns = watchdog_->longest_silence_ns();
    }
    const Fault before = facts_.fault;
    loop_->stop();
    watchdog_.reset();  // only now: until here it would have damped for us
    show_changes();
    facts_.fault = before;
    list_bundles();
    facts_.transport_counters = transport_->counters();
    if (team_link_ != nullptr) facts_.team_link = team_link_->team_counters();
    if (!logger_) return;
    logger_->stop();
    const LoggerCounters written = logger_->counters();
    facts_.log_events = written.events;
    facts_.log_lost = written.lost;
    facts_.log_bytes = written.bytes;
    facts_.log_why = logger_->why();
    look_at_log();
    if (!written.failed && written.lost > 0) say("the log lacks " + std::to_string(written.lost) + " events");
  }

  void list_bundles() {
    const Handover& first = loop_->first();
    facts_.bundles.push_back(
        {bundle_->identity, bundle_->path.string(), facts_.refused, first.time_ns(), first.first_step()});
    if (!follower_) return;
    follower_->stop();
    facts_.bundles.insert(facts_.bundles.end(), follower_->fates().begin(), follower_->fates().end());
  }

  int end() {
    const LoopCounters& counters = loop_->counters();
    const Latencies& times = loop_->latencies();
    char line[200];
    std::snprintf(line, sizeof line, "%llu steps, %llu missed; state to command p50 %.0f, p99 %.0f, p99.9 %.0f us",
                  static_cast<unsigned long long>(counters.steps),
                  static_cast<unsigned long long>(counters.missed_deadlines),
                  times.state_to_command.quantile_ns(0.5) * 1e-3, times.state_to_command.quantile_ns(0.99) * 1e-3,
                  times.state_to_command.quantile_ns(0.999) * 1e-3);
    say(line);
    if (!options_.report.empty()) {
      write_whole(options_.report, report_json(options_, *bundle_, *loop_, facts_) + "\n");
    }
    if (!facts_.refused.empty()) return static_cast<int>(ExitCode::kRefused);
    const bool fault = facts_.fault != Fault::kNone && facts_.fault != Fault::kOperatorStop;
    if (fault) return static_cast<int>(ExitCode::kFault);
    return static_cast<int>(log_failed_ ? ExitCode::kDiskFull : ExitCode::kDone);
  }

  // Destroyed in reverse order: the watchdog outlives everything that sends commands.
  Options options_;
  RunFacts facts_;
  std::unique_ptr<Bundle> bundle_;
  std::unique_ptr<Watchdog> watchdog_;
  std::optional<StopSignals> signals_;
  std::unique_ptr<Backend> backend_;
  BackendOptions chosen_;
  std::unique_ptr<Transport> transport_;
  TeamLink* team_link_ = nullptr;  // the transport, of a robot of a team
  RobotDescription robot_;
  std::optional<AwakeCpus> awake_;
  std::optional<Loop> loop_;
  std::unique_ptr<Logger> logger_;  // before the loop: it reads the loop's rings
  std::unique_ptr<Follower> follower_;
  std::uint64_t shown_ = 0;
  bool log_failed_ = false, mismatch_shown_ = false;
};

}  // namespace

int run_robot(const Options& options) { return Run(options).run(); }

}  // namespace robot_rl

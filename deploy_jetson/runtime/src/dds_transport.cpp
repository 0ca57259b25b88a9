// The policy's end on DDS: rt/lowstate in, rt/lowcmd out, as Unitree's robots speak them. The library allocates memory
// and takes locks without priority inheritance when it reads and writes. So two threads of this end do both, and the
// loop's threads only exchange copies with them.
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "dds_codec.h"
#include "dds_node.h"
#include "dds_sender.h"
#include "receiver.h"
#include "robot_rl.h"
#include "rt.h"

namespace robot_rl {
namespace {

constexpr std::uint64_t kGamepad = 1;  // source number of the remote control among operators
constexpr std::int64_t kLookNs = 300'000'000;        // how long a motor may have nothing but zeros at the beginning
constexpr std::int64_t kListenNs = 300'000'000;      // for another commander, before the first command
constexpr std::int64_t kMeasuredNs = 1'000'000'000;  // older measured values are none

/// The robot's clock, from its counter of milliseconds, which wraps around after 50 days.
class TickClock {
 public:
  std::int64_t extend(std::uint32_t tick) noexcept {
    time_ms_ = started_ ? time_ms_ + static_cast<std::int32_t>(tick - tick_) : tick;
    started_ = true;
    tick_ = tick;
    return time_ms_ * 1'000'000;
  }
  /// Whether a state with this counter was overtaken; one much further back is of a robot that started again.
  bool is_old(std::uint32_t tick) const noexcept {
    const auto ahead = static_cast<std::int32_t>(tick - tick_);
    return started_ && ahead < 0 && ahead > -kOvertakenMs;
  }

 private:
  static constexpr std::int32_t kOvertakenMs = 100;
  bool started_ = false;
  std::uint32_t tick_ = 0;
  std::int64_t time_ms_ = 0;
};

class DdsTransport final : public Receiver {
 public:
  DdsTransport(const Address& address, const std::string& operator_address, std::uint64_t commander)
      : Receiver(address.text, operator_address, commander),
        address_(address),
        check_crc_(address.flag("crc", true)),
        gamepad_commands_(operator_address.empty() || operator_address == "robot") {}

  ~DdsTransport() override { stop_receiving(); }
  RobotDescription connect(const Contract& contract, double timeout_s) override;
  bool send(const LowCommand& command) noexcept override;

 private:
  bool wait_for_data(std::int64_t deadline_ns, int also_fd) noexcept override {
    return arrived_.wait(deadline_ns, also_fd);
  }
  void drain_robot() noexcept override;
  void start_receiving();
  void stop_receiving() noexcept;
  void run() noexcept;
  // The receiving thread, and `connect` before it runs.
  void await_state(std::int64_t end, double timeout_s);
  void check_robot(const unitree::Robot& robot, const Contract& contract);
  void take_messages() noexcept;
  void take_measured() noexcept;
  void pass_on(std::int64_t now) noexcept;

  Address address_;
  bool check_crc_, gamepad_commands_;
  std::optional<unitree::Gamepad> gamepad_;
  std::optional<DdsNode> node_;
  std::unique_ptr<Codec> codec_, other_;  // `other_`: buffer for the commands of others
  dds_entity_t states_ = 0, others_ = 0, measured_ = 0;
  robot_rl_dds_Measured sample_{};
  std::int64_t measured_ns_ = 0;  // when the newest measured values arrived; 0: never
  LowState read_;  // the newest
  bool has_read_ = false;
  TickClock clock_;
  std::uint64_t sequence_ = 0;
  std::uint32_t lost_ = 0;
  std::uint8_t build_ = 0;  // the robot's mode_machine at the beginning
  bool is_checked_ = false;
  std::int32_t joints_ = 0;  // of the contract
  std::thread receiving_;
  std::atomic<bool> stopping_{false};
  Bell arrived_;
  PiMutex mutex_;
  // Under the lock: what was not yet taken.
  LowState inbox_;
  bool inbox_fresh_ = false;
  OperatorBox remote_;
  std::optional<DdsSender> sender_;
};

RobotDescription DdsTransport::connect(const Contract& contract, double timeout_s) {
  const auto& robot = unitree::robot_of(address_.option("robot", contract.robot));
  if (address_.name != robot.family) {
    throw UserError("transport: '" + std::string(robot.name) + "' speaks dds:" + robot.family +
                    ", not dds:" + address_.name);
  }
  RobotDescription description{robot.name, {}, robot.feet, 0, 0};
  for (const auto& motor : robot.motors) description.joints.push_back(motor.joint);
  if (contract.signal_size("foot_force") != 0) {
    throw ContractError("foot_force: the policy reads forces in N, the robot's feet give readings without a unit");
  }
  const auto end = now_ns() + static_cast<std::int64_t>(timeout_s * 1e9);
  stop_receiving();
  sender_.reset();
  has_read_ = is_checked_ = false;
  measured_ns_ = 0;
  lost_ = 0;
  remote_ = box_ = OperatorBox();
  node_.emplace(address_, kPolicyReceiver);
  if (address_.flag("states", true) && contract.measured_size > contract.received_size) {
    measured_ = node_->make_reader(robot_rl_dds_Measured_desc, "rt/robot_rl/measured", true);
    for (take_measured(); measured_ns_ == 0 && now_ns() < end; take_measured()) node_->bell().wait(end, -1);
    if (measured_ns_ == 0) {
      throw UserError("transport: the policy reads measured values, and none came on rt/robot_rl/measured (" +
                      address_.text + "); start what measures them");
    }
    description.measured = static_cast<int>(sample_.count);
  } else {
    description.measured = contract.measured_size - contract.received_size;
  }
  const auto places = fit_robot(contract, description);
  codec_ = make_codec(robot, places);
  other_ = make_codec(robot, places);
  gamepad_.emplace(contract, address_.option("dead_man", ""), std::stoi(address_.option("still_ms", "3000")) * 1e-3);
  states_ = node_->make_reader(codec_->state_type(), "rt/lowstate", true);
  others_ = node_->make_reader(other_->command_type(), "rt/lowcmd", false);
  await_state(end, timeout_s);
  check_robot(robot, contract);
  newest_ = read_;
  joints_ = read_.joints;
  const auto commands = node_->make_writer(codec_->command_type(), "rt/lowcmd");
  const auto infos = node_->make_writer(robot_rl_dds_CommandInfo_desc, "rt/robot_rl/command");
  sender_.emplace(*codec_, commands, infos, commander_, counters_);
  if (address_.flag("states", true)) {
    start_receiving();
    sleep_until(now_ns() + kListenNs);
  } else {
    dds_delete(others_);
    others_ = 0;
    dds_delete(states_);
    states_ = 0;
    inbox_fresh_ = false;
  }
  return description;
}

/// Throws UserError where none comes by `end`, within `timeout_s`.
void DdsTransport::await_state(std::int64_t end, double timeout_s) {
  for (take_messages(); !has_read_; take_messages()) {
    if (now_ns() >= end) {
      char line[160];
      std::snprintf(line, sizeof(line), "transport: no state on rt/lowstate within %g s (%s)%s", timeout_s,
                    address_.text.c_str(),
                    counters_.damaged > 0 ? ", only some with a wrong checksum" : "; is this the right interface?");
      throw UserError(line);
    }
    node_->bell().wait(end, -1);
  }
}

/// Compare what the robot says of itself with the table, before the first command.
void DdsTransport::check_robot(const unitree::Robot& robot, const Contract& contract) {
  build_ = codec_->mode_machine();
  unitree::check_build(robot, build_, address_.option("mode_machine", ""));
  // A position may be zero for a moment; a motor that is not there has nothing but zeros in every state.
  std::vector<bool> answers(contract.joints.size()), is_on(contract.joints.size());
  const auto end = now_ns() + kLookNs;
  const auto without = [&](const std::vector<bool>& has) {
    std::string names;
    for (std::size_t joint = 0; joint < has.size(); ++joint) {
      if (!has[joint]) names += (names.empty() ? "" : ", ") + contract.joints[joint].name;
    }
    return names;
  };
  std::string missing, off;
  for (;;) {
    for (std::size_t joint = 0; joint < answers.size(); ++joint) {
      answers[joint] = answers[joint] || !codec_->lacks(joint);
      is_on[joint] = is_on[joint] || codec_->is_on(joint);
    }
    missing = without(answers);
    // A simulator may show none that is on.
    off = std::find(is_on.begin(), is_on.end(), true) != is_on.end() ? without(is_on) : "";
    if ((missing.empty() && off.empty()) || now_ns() >= end) break;
    node_->bell().wait(end, -1);
    take_messages();
  }
  if (missing.empty() && !off.empty()) {
    throw ContractError("robot: other motors are on, those of " + off + " are off (mode 0); switch them on");
  }
  unitree::check_battery(codec_->battery(), address_.option("battery", "10"));
  if (!missing.empty()) {
    throw ContractError("robot: no motor answers for " + missing + "; the policy drives all joints of " + robot.name);
  }
  is_checked_ = true;
}

void DdsTransport::start_receiving() {
  try {
    receiving_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw UserError(std::string("transport: DDS: a thread cannot be started: ") + error.what());
  }
}

void DdsTransport::stop_receiving() noexcept {
  if (!receiving_.joinable()) return;
  stopping_ = true;
  node_->bell().ring();
  receiving_.join();
  stopping_ = false;
}

void DdsTransport::run() noexcept {
  prctl(PR_SET_NAME, "dds-receive", 0, 0, 0);
  std::string why;
  set_fifo(kPolicyReceiver, why);  // that it is not permitted is said of the loop's threads
  prefault_stack();
  while (!stopping_) {
    const auto before = allocations();
    take_messages();
    std::uint64_t writer;
    while (take_sample(others_, other_->command(), &writer)) watch_.found(now_ns());
    counters_.allocations.fetch_add(allocations() - before, std::memory_order_relaxed);
    node_->bell().wait(INT64_MAX, -1);
  }
}

void DdsTransport::drain_robot() noexcept {
  const std::lock_guard lock(mutex_);
  if (inbox_fresh_) newest_ = inbox_;
  fresh_ = fresh_ || inbox_fresh_;
  inbox_fresh_ = false;
  OperatorInput input;
  if (remote_.take(input)) box_.put(input, kGamepad, input.receive_time_ns);
}

/// The newest values of what is measured around the robot; they belong to every state until newer ones come.
void DdsTransport::take_measured() noexcept {
  while (measured_ != 0 && take_sample(measured_, &sample_, nullptr)) {
    if (sample_.count < 1 || sample_.count > kMaxMeasured) {
      count(counters_.damaged);
      continue;
    }
    measured_ns_ = now_ns();
    read_.measured_count = static_cast<std::int32_t>(sample_.count);
    std::copy_n(sample_.values, sample_.count, read_.measured);
  }
  // The safety layer refuses a state that lacks them.
  if (measured_ != 0 && now_ns() - measured_ns_ > kMeasuredNs) read_.measured_count = 0;
}

void DdsTransport::take_messages() noexcept {
  take_measured();
  for (int taken = 0; states_ != 0 && taken < kMaxDrain && take_sample(states_, codec_->state(), nullptr); ++taken) {
    const auto now = now_ns();
    if (codec_->tick() != 0 && clock_.is_old(codec_->tick())) {
      count(counters_.old);
      continue;
    }
    if (!codec_->read_state(read_, check_crc_)) {
      count(counters_.damaged);
      continue;
    }
    if (is_checked_ && codec_->mode_machine() != build_) {  // It is another robot now: every motor has a fault.
      std::fill_n(read_.motor_fault, read_.joints, ~std::uint32_t{0});
    }
    // Without a counter of milliseconds the time of arrival is used; a state with an unchanged counter keeps its
    // number, so that a frozen counter is detected.
    const auto before = read_.robot_time_ns;
    read_.robot_time_ns = codec_->tick() == 0 ? now : clock_.extend(codec_->tick());
    if (sequence_ == 0 || read_.robot_time_ns != before) ++sequence_;
    read_.sequence = sequence_;
    read_.receive_time_ns = now;
    has_read_ = true;
    count(counters_.states);
    pass_on(now);
  }
  dds_sample_lost_status_t lost;
  if (states_ != 0 && dds_get_sample_lost_status(states_, &lost) == DDS_RETCODE_OK && lost.total_count != lost_) {
    counters_.lost.fetch_add(lost.total_count - lost_, std::memory_order_relaxed);
    lost_ = lost.total_count;
  }
}

/// The loop's threads take the newest state. The remote control is the operator if no other one is configured; its
/// button for damping always works.
void DdsTransport::pass_on(std::int64_t now) noexcept {
  OperatorInput input;
  const bool heard = gamepad_->read(codec_->remote(), now, input);
  {
    const std::lock_guard lock(mutex_);
    inbox_ = read_;
    inbox_fresh_ = true;
    if (heard && (gamepad_commands_ || input.request == Request::kDamp)) remote_.put(input, kGamepad, now);
  }
  arrived_.ring();
}

bool DdsTransport::send(const LowCommand& command) noexcept {
  if (!sender_ || command.joints != joints_) {
    count(counters_.send_failed);
    return false;
  }
  return sender_->pass(command);
}

}  // namespace

bool has_dds() { return true; }

std::unique_ptr<Transport> make_dds_transport(const std::string& address, const std::string& operator_address,
                                              std::uint64_t commander) {
  return std::make_unique<DdsTransport>(parse_address(address, "transport"), operator_address, commander);
}

}  // namespace robot_rl

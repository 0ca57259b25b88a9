// Targets: what comes from other programs and robots, and what the loop passes to the logger.
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

#include "address.h"
#include "cdr.h"
#include "channel.h"
#include "crc32.h"
#include "fuzz.h"
#include "operator_box.h"
#include "protocol.h"
#include "records.h"
#include "sequence.h"
#include "team_link.h"
#include "unitree.h"
#ifdef ROBOT_RL_CODEC
#include "dds_codec.h"
#endif

namespace robot_rl {
namespace {

constexpr std::int64_t kNow = 1'000'000'000'000;

LowState state_of(const Contract& contract) {
  LowState state;
  state.sequence = 1;
  state.robot_time_ns = kNow;
  state.joints = static_cast<int>(contract.joints.size());
  state.feet = state.measured_count = 2;
  return state;
}

LowCommand command_of(const Contract& contract) {
  LowCommand command;
  command.commander = command.sequence = 7;
  command.joints = static_cast<int>(contract.joints.size());
  return command;
}

OperatorInput input_of() {
  OperatorInput input;
  input.sequence = 1;
  input.request = Request::kPolicy;
  input.size = 3;
  return input;
}

/// What the loop does with a state from outside.
void use_state(LowState state) {
  static Commander commander(place().contract, {}, 1);
  static std::int64_t now = kNow;
  if (state.joints != static_cast<int>(place().contract.joints.size())) return;
  state.receive_time_ns = now += 2'000'000;
  if (commander.phase() == Phase::kBoot) commander.ready(now);
  commander.on_state(state, now);
  LowCommand command;
  commander.command(now, false, command);
}

// ---- Frames, of UDP and shared memory.

constexpr std::size_t kFrameHead = 16, kFrameTail = 4;

void repair_frame(FuzzBytes& data) {
  if (data.size() < kFrameHead + kFrameTail) return;
  const auto payload = data.size() - kFrameHead - kFrameTail;
  put_number(data, 8, static_cast<std::uint32_t>(payload));
  if (below(2)) put_number(data, 12, crc32(std::span(data).subspan(kFrameHead, payload)));
  put_number(data, data.size() - kFrameTail, crc32(std::span(data).first(data.size() - kFrameTail)));
}

void read_frame(std::span<const std::byte> data) {
  static OperatorBox box;
  static SequenceWindow window;
  static std::atomic<std::uint64_t> lost{0};
  Frame frame;
  if (open_frame(data, frame) != Opened::kGood) return;
  LowState state;
  LowCommand command;
  OperatorInput input;
  RobotDescription robot;
  Hello hello;
  TeamMessage message;
  std::uint64_t number = 0;
  if (read_state(frame, state)) {
    window.see(state.sequence, lost);
    use_state(state);
  }
  read_command(frame, command);
  if (read_describe(frame, robot)) layout_of(robot);
  read_hello(frame, hello);
  read_bye(frame, number);
  read_team_message(frame, message);
  if (read_operator(frame, input, number)) box.put(input, number, kNow);
  box.take(input);
}

template <class Write>
FuzzBytes frame_of(const Write& write) {
  FuzzBytes room(kMaxFrame);
  room.resize(write(std::span<std::byte>(room)));
  if (room.empty()) std::abort();
  return room;
}

TeamMessage team_message(int count) {
  TeamMessage message;
  message.sender = 1;
  message.sequence = 5;
  message.count = count;
  return message;
}

Target frame_target() {
  const auto& contract = place().contract;
  RobotDescription robot{contract.robot, {}, 2, 2, 0};
  for (const auto& joint : contract.joints) robot.joints.push_back(joint.name);
  const auto layout = layout_of(robot);
  return {{frame_of([&](auto room) { return write_state(state_of(contract), layout, room); }),
           frame_of([&](auto room) { return write_command(command_of(contract), layout, room); }),
           frame_of([&](auto room) { return write_operator(input_of(), 3, room); }),
           frame_of([&](auto room) { return write_describe(robot, room); }),
           frame_of([&](auto room) { return write_hello({7, true}, room); }),
           frame_of([&](auto room) { return write_team_message(team_message(4), layout, room); }),
           frame_of([&](auto room) { return write_bye(7, room); })},
          read_frame,
          repair_frame};
}

// ---- A segment of shared memory into which another process writes anything.

std::unique_ptr<ServerChannel> server;
std::unique_ptr<ClientChannel> client;
std::string segment_path;

/// Write the bytes at a place that the first of them give, most often at the beginning of a ring; then read both ends.
void read_segment(std::span<const std::byte> data) {
  constexpr std::size_t kSegmentHead = 16;
  if (data.size() < 4) return;
  std::fstream file(segment_path, std::ios::binary | std::ios::in | std::ios::out | std::ios::ate);
  const std::size_t rings = 2 * kMaxPeers, size = static_cast<std::size_t>(file.tellp());
  const std::size_t ring = std::to_integer<std::size_t>(data[0]) % rings, reach = data[3] < std::byte{32} ? 4096 : 64;
  const auto at = kSegmentHead + ring * ((size - kSegmentHead) / rings) + number_at<std::uint16_t>(data, 1) % reach;
  file.seekp(static_cast<std::streamoff>(at));
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  file.close();
  std::vector<std::byte> frame(kMaxFrame);
  int peer = -1;
  for (int k = 0; k < 3; ++k) {
    if (server->receive(frame, peer) > 0 && peer < 0) peer = server->adopt();
    if (peer >= 0) server->send(peer, data);
    client->send(data);
    client->receive(frame);
  }
  server->wait(0);
  client->wait(0, -1);
}

Target segment_target() {
  const std::string name = "fuzz-" + place().ports[0];
  const auto address = parse_address("shm:" + name, "transport");
  segment_path = "/dev/shm/robot_rl." + name;
  server = make_shm_server(address);
  client = make_shm_client(address);
  client->open();
  return {{FuzzBytes(16), FuzzBytes(64, std::byte{0xff}), FuzzBytes(200, std::byte{1})}, read_segment};
}

// ---- The messages of a team, as they come over UDP.

class Silent final : public Transport {
 public:
  RobotDescription connect(const Contract&, double) override { return {}; }
  bool wait(std::int64_t) noexcept override { return false; }
  bool take_state(LowState& state) noexcept override {
    state.joints = 12;
    return true;
  }
  bool take_operator(OperatorInput&) noexcept override { return false; }
  bool send(const LowCommand&) noexcept override { return true; }
  bool second_commander() const noexcept override { return false; }
  TransportCounters counters() const noexcept override { return {}; }
  std::string identity() const override { return "silent"; }
};

std::optional<Contract> team_contract;
std::unique_ptr<TeamLink> link;
std::unique_ptr<DatagramSender> sender;

void read_team(std::span<const std::byte> data) {
  LowState state;
  sender->send(data);
  link->take_state(state);
  link->mismatch();
}

/// The link's own messages, with the place of another robot.
Target team_target() {
  team_contract = read_contract(text_of(read_file(place().folder + "/team.json")));
  const auto own = "udp:127.0.0.1:" + place().ports[0];
  const auto other = "udp:127.0.0.1:" + place().ports[1];
  link = std::make_unique<TeamLink>(std::make_unique<Silent>(), *team_contract,
                                    TeamLinkOptions{team_contract->team.front(), own, {other}});
  sender = std::make_unique<DatagramSender>(parse_address(own, "team"), "team");
  DatagramSocket listening(parse_address(other, "team"), "team");
  LowState state;
  link->take_state(state);
  auto frame = frame_of([&](auto room) { return listening.receive(room); });
  put_number<std::uint16_t>(frame, kFrameHead, 1);
  repair_frame(frame);
  return {{frame}, read_team, repair_frame};
}

// ---- Unitree's messages.

void read_remote(std::span<const std::byte> data) {
  static unitree::Gamepad gamepad(place().contract);
  OperatorInput input;
  static std::int64_t now = 0;
  gamepad.read({reinterpret_cast<const std::uint8_t*>(data.data()), data.size()}, now += 400'000'000, input);
}

Target remote_target() {
  FuzzBytes remote(40);
  unitree::write_remote({0.5f, -1, 1, 0, unitree::kButtonA},
                        {reinterpret_cast<std::uint8_t*>(remote.data()), remote.size()});
  return {{remote}, read_remote};
}

#ifdef ROBOT_RL_CODEC
/// CycloneDDS gives a whole message of any content.
void read_sample(std::span<const std::byte> data) {
  for (const char* name : {"unitree_go2", "unitree_g1"}) {
    const auto& robot = unitree::robot_of(name);
    std::vector<int> motors;
    for (std::size_t k = 0; k < robot.motors.size(); ++k) motors.push_back(static_cast<int>(k));
    const auto codec = make_codec(robot, motors);
    LowState state;
    LowCommand command;
    std::memcpy(codec->state(), data.data(), std::min<std::size_t>(data.size(), codec->state_type().m_size));
    std::memcpy(codec->command(), data.data(), std::min<std::size_t>(data.size(), codec->command_type().m_size));
    codec->read_state(state, below(8) == 0);
    codec->read_command(command, below(8) == 0);
    read_remote(std::as_bytes(codec->remote()));
    codec->write_state(state, nullptr);
    codec->write_command(command);
    codec->turn_bit(static_cast<std::uint32_t>(random_bits()));
  }
}

Target sample_target() {
  std::vector<FuzzBytes> corpus;
  for (const char* name : {"unitree_go2", "unitree_g1"}) {
    const auto& robot = unitree::robot_of(name);
    const auto codec = make_codec(robot, {0, 1, 2});
    LowState state;
    codec->write_state(state, nullptr);
    const auto* first = static_cast<const std::byte*>(codec->state());
    corpus.emplace_back(first, first + codec->state_type().m_size);
  }
  return {corpus, read_sample};
}
#endif

// ---- From the loop to the logger, and to the log.

void read_record(std::span<const std::byte> data) {
  LogEvent e;
  Identity identity;
  std::span<const float> command, observation;
  bool good[] = {unpack_state(data, e.state), unpack_operator(data, e.input),
                 unpack_policy(data, e.output, command, observation), unpack_command(data, e.sent)};
  if (good[2]) e.command.assign(command.begin(), command.end());
  if (good[2]) e.observation.assign(observation.begin(), observation.end());
  if (unpack_fault(data, e.finding)) describe(e.finding, place().contract);
  unpack_swap(data, identity);
  for (std::size_t channel = 0; channel < std::size(good); ++channel) {
    CdrWriter writer;
    if (good[channel]) log_fields(writer, channel, e, true);
  }
}

Target record_target() {
  const auto& contract = place().contract;
  EventRing ring(1 << 20);
  PolicyOutput output;
  output.actions = contract.action_size;
  const float floats[5] = {};
  push_state(ring, 0, kNow, state_of(contract));
  push_operator(ring, 1, kNow, input_of());
  push_policy(ring, 2, kNow, output, std::span(floats).first(3), floats);
  push_command(ring, 3, kNow, command_of(contract));
  push_fault(ring, 4, kNow, {Fault::kTilt, 1, 2.0, 1.0});
  push_swap(ring, 5, kNow, {});
  Target target{{}, read_record};
  EventHeader header;
  FuzzBytes room(kMaxEvent);
  while (ring.pop(header, room)) target.corpus.emplace_back(room.begin(), room.begin() + header.bytes);
  return target;
}

void read_cdr(std::span<const std::byte> data) {
  static Commander commander(place().contract, {}, 1);
  for (std::size_t channel = 0; channel < kLogChannels.size(); ++channel) {
    for (const bool measured : {false, true}) {
      LogEvent e;
      e.state.joints = e.state.feet = e.input.size = e.output.actions = e.sent.joints = -1;
      e.state.measured_count = measured ? -1 : 0;
      CdrReader reader(data);
      log_fields(reader, channel, e, measured);
      if (!reader.good()) continue;
      CdrWriter writer;
      log_fields(writer, channel, e, measured);
      if (channel + 1 < kLogChannels.size()) e.kind = static_cast<EventKind>(channel);
      if (e.kind <= EventKind::kSwap) play(commander, e);
    }
  }
}

Target cdr_target() {
  const auto& contract = place().contract;
  Target target{{}, read_cdr};
  LogEvent e;
  e.state = state_of(contract);
  e.input = input_of();
  e.sent = command_of(contract);
  e.output.actions = contract.action_size;
  e.observation.assign(9, 1.0f);
  e.text = "text";
  for (std::size_t channel = 0; channel < kLogChannels.size(); ++channel) {
    CdrWriter writer;
    log_fields(writer, channel, e, channel == 0);
    target.corpus.emplace_back(writer.bytes().begin(), writer.bytes().end());
  }
  return target;
}

void read_address(std::span<const std::byte> data) {
  const auto address = parse_address(std::string(text_of(data)), "transport");
  address.flag("crc", true);
}

Target address_target() {
  return {{bytes_of_text("udp:127.0.0.1:9870"), bytes_of_text("shm:name"),
           bytes_of_text("dds:unitree_hg?domain=3&interface=lo&crc=false")},
          read_address};
}

}  // namespace

void add_message_targets(Targets& targets) {
  targets["frame"] = frame_target;
  targets["segment"] = segment_target;
  targets["team"] = team_target;
  targets["remote"] = remote_target;
  targets["record"] = record_target;
  targets["cdr"] = cdr_target;
  targets["address"] = address_target;
#ifdef ROBOT_RL_CODEC
  targets["sample"] = sample_target;
#endif
}

}  // namespace robot_rl

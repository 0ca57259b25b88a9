// Decoders and both ends of a transport under -fsanitize=address,undefined: garbage in buffers of the exact size, and a
// robot that gets garbage between good frames. test_sanitized.py builds and runs it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "address.h"
#include "channel.h"
#include "operator_box.h"
#include "protocol.h"
#include "robot_end.h"
#include "rt.h"
#include "sequence.h"
#include "unitree.h"

using namespace robot_rl;

namespace {

std::mt19937_64 draw(1);
const RobotDescription kToy{"toy", {"tail", "hip", "knee"}, 0, 0, 0}, kSeeing{"toy", {"tail"}, 0, 0, 7};

std::size_t random_frame(std::span<std::byte> room) {
  LowState state;
  LowCommand command;
  OperatorInput input;
  state.joints = static_cast<int>(draw() % 65);
  state.feet = static_cast<int>(draw() % 9);
  state.measured_count = static_cast<int>(draw() % 65);
  command.joints = static_cast<int>(draw() % 65);
  command.commander = 1;
  input.size = static_cast<int>(draw() % 17);
  switch (draw() % 6) {
    case 0: return write_state(state, static_cast<std::uint32_t>(draw()), room);
    case 1: return write_command(command, static_cast<std::uint32_t>(draw()), room);
    case 2: return write_operator(input, draw(), room);
    case 3: return write_describe(draw() % 2 != 0 ? kToy : kSeeing, room);
    case 4: return write_hello({draw(), true}, room);
    default: return write_bye(draw(), room);
  }
}

/// A frame with some bytes changed or cut off; most get size and CRC made right again, so that the readers are reached.
std::size_t garbage(std::span<std::byte> room) {
  auto size = random_frame(room);
  for (auto changes = draw() % 4; changes > 0; --changes) room[draw() % size] = static_cast<std::byte>(draw());
  if (draw() % 3 == 0) size = draw() % (size + 1);
  if (size >= 20 && draw() % 4 != 0) {
    const auto payload = static_cast<std::uint32_t>(size - 20);
    std::memcpy(room.data() + 8, &payload, 4);
    const auto layout = crc32(room.subspan(16, payload));
    if (draw() % 2 == 0) std::memcpy(room.data() + 12, &layout, 4);
    const auto crc = crc32(room.first(size - 4));
    std::memcpy(room.data() + size - 4, &crc, 4);
  }
  return size;
}

void fuzz_readers() {
  OperatorBox box;
  std::vector<std::byte> room(kMaxFrame);
  long taken = 0;
  for (int round = 0; round < 100'000; ++round) {
    const auto size = garbage(room);
    const std::unique_ptr<std::byte[]> exact(new std::byte[size]);
    std::memcpy(exact.get(), room.data(), size);
    Frame frame;
    if (open_frame({exact.get(), size}, frame) != Opened::kGood) continue;
    LowState state;
    LowCommand command;
    OperatorInput input;
    RobotDescription robot;
    Hello hello;
    std::uint64_t number = 0;
    taken += read_state(frame, state) + read_command(frame, command) + read_describe(frame, robot) +
             read_hello(frame, hello) + read_bye(frame, number);
    if (read_operator(frame, input, number)) box.put(input, number, round * 1000);
    box.take(input);
  }
  if (taken == 0) std::abort();
}

void fuzz_rooms() {
  LowState state;
  state.joints = kMaxJoints;
  state.measured_count = kMaxMeasured;
  for (std::size_t size = 0; size < kMaxFrame; ++size) {
    const std::unique_ptr<std::byte[]> room(new std::byte[size]);
    const auto written = write_state(state, 1, {room.get(), size}) + write_describe(kToy, {room.get(), size});
    if (written > 2 * size) std::abort();
  }
  SequenceWindow window;
  std::atomic<std::uint64_t> lost{0};
  for (int round = 0; round < 300'000; ++round) window.see(draw() % 3 != 0 ? draw() % 200 : draw(), lost);
  Contract contract;
  contract.command.resize(3);
  unitree::Gamepad gamepad(contract);
  for (int round = 0; round < 30'000; ++round) {
    std::vector<std::uint8_t> remote(draw() % 60);
    for (auto& byte : remote) byte = static_cast<std::uint8_t>(draw());
    if (remote.size() > 1) remote[0] = 0x55, remote[1] = 0x51;
    OperatorInput input;
    gamepad.read(remote, static_cast<std::int64_t>(draw() % 10) * 1'000'000'000, input);
  }
}

/// Both ends in two threads; a third client sends the robot garbage all the time.
void run_ends(const std::string& address, const Contract& contract) {
  const auto end = make_robot_end(address, kToy);
  std::atomic<bool> done{false};
  std::thread robot([&] {
    LowState state;
    LowCommand command;
    state.joints = 3;
    while (!done) {
      end->wait(now_ns() + 1'000'000);
      while (end->take_command(command)) {
      }
      end->send_state(state);
    }
  });
  const auto where = parse_address(address, "transport");
  const auto stranger = where.kind == "udp" ? make_udp_client(where) : make_shm_client(where);
  stranger->open();
  const auto client = make_transport(address, "", 7);
  client->connect(contract, 20.0);
  std::vector<std::byte> room(kMaxFrame);
  LowState state;
  LowCommand command;
  command.joints = 3;
  for (int round = 0; round < 1000; ++round) {
    stranger->send(std::span(room).first(garbage(room)));
    client->wait(now_ns() + 5'000'000);
    client->take_state(state);
    ++command.sequence;
    client->send(command);
  }
  done = true;
  robot.join();
  if (client->counters().states == 0 || end->counters().commands == 0 || end->counters().damaged == 0) std::abort();
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  fuzz_readers();
  fuzz_rooms();
  std::ifstream file(words[1]);
  const auto contract = read_contract(std::string(std::istreambuf_iterator<char>(file), {}));
  run_ends(words[2], contract);
  run_ends(words[3], contract);
  std::puts("clean");
}

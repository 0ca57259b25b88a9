// Transports in Python: both ends, the operator's, and single frames for programs between the ends.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <random>

#include "address.h"
#include "bindings.h"
#include "channel.h"
#include "protocol.h"
#include "robot_end.h"
#include "rt.h"
#include "transport_parts.h"
#include "unitree.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace robot_rl {
namespace {

std::int64_t deadline(double seconds) { return now_ns() + static_cast<std::int64_t>(seconds * 1e9); }

nb::dict as_dict(const TransportCounters& counters) {
  nb::dict result;
  for (const auto& [name, member] : kTransportCounters) result[name] = counters.*member;
  return result;
}

/// Speaks as the operator to a binary's operator address.
class OperatorEnd {
 public:
  explicit OperatorEnd(const std::string& address) : sender_(parse_address(address, "operator"), "operator") {
    std::random_device random;
    source_ = (std::uint64_t{random()} << 32) | random();
  }
  bool send(const std::vector<float>& command, Request request) {
    if (command.size() > kMaxCommand)
      throw UserError("command: more than " + std::to_string(kMaxCommand) + " components");
    OperatorInput input;
    input.sequence = ++sequence_;
    input.request = request;
    input.size = static_cast<std::int32_t>(command.size());
    std::copy(command.begin(), command.end(), input.command);
    std::array<std::byte, kMaxFrame> out;
    const auto size = write_operator(input, source_, out);
    return sender_.send(std::span(out).first(size));
  }

 private:
  DatagramSender sender_;
  std::uint64_t source_, sequence_ = 0;
};

template <class Write>
nb::bytes written(const Write& write) {
  std::array<std::byte, kMaxFrame> out;
  const std::size_t size = write(std::span<std::byte>(out));
  if (size == 0) throw nb::value_error("counts or names are out of range");
  return nb::bytes(out.data(), size);
}

/// The frame if it is complete and of this kind.
std::optional<Frame> opened(const nb::bytes& data, Message kind) {
  Frame frame;
  if (open_frame(from_bytes(data), frame) != Opened::kGood || frame.kind != kind) return std::nullopt;
  return frame;
}

void bind_frames(nb::module_& module) {
  nb::enum_<Message>(module, "Message", "Kinds of frames.")
      .value("HELLO", Message::kHello)
      .value("DESCRIBE", Message::kDescribe)
      .value("STATE", Message::kState)
      .value("COMMAND", Message::kCommand)
      .value("OPERATOR", Message::kOperator)
      .value("BYE", Message::kBye)
      .value("TEAM_MESSAGE", Message::kTeamMessage);
  module.attr("PROTOCOL_VERSION") = kProtocolVersion;
  module.attr("MAX_FRAME") = kMaxFrame;
  module.def(
      "frame_kind",
      [](const nb::bytes& data) -> std::optional<std::pair<Message, std::uint32_t>> {
        Frame frame;
        if (open_frame(from_bytes(data), frame) != Opened::kGood) return std::nullopt;
        return std::pair(frame.kind, frame.layout);
      },
      "data"_a, "Kind and layout of a frame; None if it is damaged or of another version.");
  module.def("layout_of", &layout_of, "robot"_a);
}

void bind_writers(nb::module_& module) {
  module.def(
      "write_state",
      [](const LowState& state, std::uint32_t layout) {
        return written([&](auto out) { return write_state(state, layout, out); });
      },
      "state"_a, "layout"_a);
  module.def(
      "write_command",
      [](const LowCommand& command, std::uint32_t layout) {
        return written([&](auto out) { return write_command(command, layout, out); });
      },
      "command"_a, "layout"_a);
  module.def(
      "write_operator",
      [](const OperatorInput& input, std::uint64_t source) {
        return written([&](auto out) { return write_operator(input, source, out); });
      },
      "input"_a, "source"_a);
  module.def(
      "write_describe",
      [](const RobotDescription& robot) { return written([&](auto out) { return write_describe(robot, out); }); },
      "robot"_a);
  module.def(
      "write_hello",
      [](std::uint64_t commander, bool states) {
        return written([&](auto out) { return write_hello({commander, states}, out); });
      },
      "commander"_a, "states"_a = true);
}

void bind_readers(nb::module_& module) {
  module.def(
      "read_state",
      [](const nb::bytes& data) -> std::optional<LowState> {
        LowState state;
        const auto frame = opened(data, Message::kState);
        return frame && read_state(*frame, state) ? std::optional(state) : std::nullopt;
      },
      "data"_a, "The state in a frame; None if there is none.");
  module.def(
      "read_command",
      [](const nb::bytes& data) -> std::optional<LowCommand> {
        LowCommand command;
        const auto frame = opened(data, Message::kCommand);
        return frame && read_command(*frame, command) ? std::optional(command) : std::nullopt;
      },
      "data"_a, "The command in a frame; None if there is none.");
  module.def(
      "read_operator",
      [](const nb::bytes& data) -> std::optional<std::pair<OperatorInput, std::uint64_t>> {
        OperatorInput input;
        std::uint64_t source = 0;
        const auto frame = opened(data, Message::kOperator);
        if (!frame || !read_operator(*frame, input, source)) return std::nullopt;
        return std::pair(input, source);
      },
      "data"_a, "The operator's message in a frame and its source; None if there is none.");
  module.def(
      "read_describe",
      [](const nb::bytes& data) -> std::optional<RobotDescription> {
        RobotDescription robot;
        const auto frame = opened(data, Message::kDescribe);
        return frame && read_describe(*frame, robot) ? std::optional(robot) : std::nullopt;
      },
      "data"_a, "The description in a frame; None if there is none.");
  module.def(
      "read_hello",
      [](const nb::bytes& data) -> std::optional<std::pair<std::uint64_t, bool>> {
        Hello hello;
        const auto frame = opened(data, Message::kHello);
        if (!frame || !read_hello(*frame, hello)) return std::nullopt;
        return std::pair(hello.commander, hello.states);
      },
      "data"_a, "Commander of a greeting and whether it wants states; None if there is none.");
}

void bind_team_messages(nb::module_& module) {
  module.def(
      "write_team_message",
      [](int sender, std::uint64_t sequence, const std::vector<float>& values, std::uint32_t layout) {
        TeamMessage message;
        message.sender = static_cast<std::uint16_t>(sender);
        message.sequence = sequence;
        message.count = static_cast<std::int32_t>(values.size());
        if (values.size() > kMaxTeamValues) throw nb::value_error("too many values");
        std::copy(values.begin(), values.end(), message.values);
        return written([&](auto out) { return write_team_message(message, layout, out); });
      },
      "sender"_a, "sequence"_a, "values"_a, "layout"_a, "The messages of a robot of a team to the others, as a frame.");
  module.def(
      "read_team_message",
      [](const nb::bytes& data) -> std::optional<std::tuple<int, std::uint64_t, std::vector<float>>> {
        TeamMessage message;
        const auto frame = opened(data, Message::kTeamMessage);
        if (!frame || !read_team_message(*frame, message)) return std::nullopt;
        const std::vector<float> values(message.values, message.values + message.count);
        return std::tuple(message.sender, message.sequence, values);
      },
      "data"_a, "Sender, sequence number and values in a frame; None if there is none.");
}

void bind_ends(nb::module_& module) {
  nb::class_<RobotDescription>(module, "RobotDescription", "A robot's description of itself; joints in its own order.")
      .def(
          "__init__",
          [](RobotDescription* self, std::string robot, std::vector<std::string> joints, int feet, int heights,
             int measured) {
            new (self) RobotDescription{std::move(robot), std::move(joints), feet, heights, measured};
          },
          "robot"_a, "joints"_a, "feet"_a = 0, "heights"_a = 0, "measured"_a = 0)
      .def_ro("robot", &RobotDescription::robot)
      .def_ro("joints", &RobotDescription::joints)
      .def_ro("feet", &RobotDescription::feet)
      .def_ro("heights", &RobotDescription::heights)
      .def_ro("measured", &RobotDescription::measured);

  nb::class_<RobotEnd>(module, "RobotEnd",
                       "The robot's side of a transport: states out, commands in; joints in the robot's order.")
      .def(nb::new_([](const std::string& address, const RobotDescription& robot) {
             return make_robot_end(address, robot);
           }),
           "address"_a, "robot"_a)
      .def(
          "wait", [](RobotEnd& self, double seconds) { return self.wait(deadline(seconds)); }, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "Sleep until something arrived; False if nothing did for so many seconds.")
      .def("wait_until", &RobotEnd::wait, "deadline_ns"_a, nb::call_guard<nb::gil_scoped_release>(),
           "The same up to a time of now_ns().")
      .def(
          "take_command",
          [](RobotEnd& self) -> std::optional<LowCommand> {
            LowCommand command;
            return self.take_command(command) ? std::optional(command) : std::nullopt;
          },
          "The next command in the order of arrival, or None. Greetings are answered here, so call it often.")
      .def(
          "send_state", &RobotEnd::send_state, "state"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Send to every client; returns how many. Sequence 0: one more than the last; commander 0: the one seen last.")
      .def("send_corrupt", &RobotEnd::send_corrupt, "state"_a, "bit"_a, nb::call_guard<nb::gil_scoped_release>(),
           "The same with one bit flipped, so that it arrives damaged; any number selects a bit.")
      .def("send_operator", &RobotEnd::send_operator, "input"_a, "source"_a,
           "Forward an operator's message to every client.")
      .def_prop_ro("clients", &RobotEnd::clients)
      .def_prop_ro("counters", [](const RobotEnd& self) { return as_dict(self.counters()); })
      .def_prop_ro("identity", &RobotEnd::identity);

  nb::class_<OperatorEnd>(module, "OperatorEnd", "Speaks as the operator; each message is a heartbeat, too.")
      .def(nb::init<const std::string&>(), "address"_a)
      .def("send", &OperatorEnd::send, "command"_a, "request"_a = Request::kNone,
           "Send; False if the system refused. Datagrams get lost: repeat a request until its effect is seen.");
}

void bind_client(nb::module_& module) {
  nb::class_<Transport>(module, "Transport",
                        "The policy's side of a transport, as the binary uses it; joints in the contract's order.")
      .def(nb::new_([](const std::string& address, const std::string& operator_address, std::uint64_t commander) {
             return make_transport(address, operator_address, commander);
           }),
           "address"_a, "operator_address"_a = "", "commander"_a = 1)
      .def(
          "connect",
          [](Transport& self, const std::string& contract_json, double timeout_s) {
            const auto contract = read_contract(contract_json);
            nb::gil_scoped_release unlocked;
            return self.connect(contract, timeout_s);
          },
          "contract_json"_a, "timeout_s"_a = 10.0,
          "Find the robot and resolve the joints of a contract (the text of its JSON).")
      .def(
          "wait", [](Transport& self, double seconds) { return self.wait(deadline(seconds)); }, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def("take_state",
           [](Transport& self) -> std::optional<LowState> {
             LowState state;
             return self.take_state(state) ? std::optional(state) : std::nullopt;
           })
      .def("take_operator",
           [](Transport& self) -> std::optional<OperatorInput> {
             OperatorInput input;
             return self.take_operator(input) ? std::optional(input) : std::nullopt;
           })
      .def("send", &Transport::send, "command"_a)
      .def_prop_ro("second_commander", &Transport::second_commander)
      .def_prop_ro("counters", [](const Transport& self) { return as_dict(self.counters()); })
      .def_prop_ro("identity", &Transport::identity);
}

void bind_unitree(nb::module_& module) {
  module.def("has_dds", &has_dds, "Whether this build speaks DDS.");
  module.def(
      "unitree_motors", [](const std::string& robot) { return unitree::robot_of(robot).joint_names(); }, "robot"_a,
      "Names of a Unitree robot's joints in the order of its motors; '' for an unused place.");
  module.def(
      "unitree_family", [](const std::string& robot) { return unitree::robot_of(robot).family; }, "robot"_a,
      "Family of a Unitree robot's messages: \"unitree_go\" or \"unitree_hg\".");
  module.def(
      "unitree_crc", [](const nb::bytes& data) { return unitree::crc(data.data(), data.size()); }, "data"_a,
      "The checksum in Unitree's messages, over all words of a message but the last.");
}

void bind_transport(nb::module_& module) {
  module.def("now_ns", &now_ns, "CLOCK_MONOTONIC [ns].");
  bind_frames(module);
  bind_writers(module);
  bind_readers(module);
  bind_team_messages(module);
  bind_ends(module);
  bind_client(module);
  bind_unitree(module);
}

const AddBinder kAdd(bind_transport);

}  // namespace
}  // namespace robot_rl

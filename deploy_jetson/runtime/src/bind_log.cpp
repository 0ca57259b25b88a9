// Python: the event rings, the logger, and the content of a log.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string_view>

#include "bindings.h"
#include "log_reader.h"
#include "records.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

nb::bytes to_bytes(std::span<const std::byte> data) { return nb::bytes(data.data(), data.size()); }

std::span<const std::byte> from_bytes(const nb::bytes& data) {
  return {static_cast<const std::byte*>(data.data()), data.size()};
}

nb::object pop(EventRing& ring) {
  EventHeader header;
  std::vector<std::byte> payload(kMaxEvent);
  if (!ring.pop(header, payload)) return nb::none();
  return nb::make_tuple(static_cast<int>(header.kind), header.order, header.time_ns,
                        to_bytes(std::span(payload).first(header.bytes)));
}

/// Columns of numbers, collected event by event; each becomes the bytes of an int64 array.
class Columns {
 public:
  template <class... T>
  void add(std::initializer_list<const char*> names, T... values) {
    const std::int64_t row[] = {static_cast<std::int64_t>(values)...};
    std::size_t k = 0;
    for (const char* name : names) columns_[name].push_back(row[k++]);
  }
  nb::dict dict() const {
    nb::dict found;
    for (const auto& [name, values] : columns_) found[name.c_str()] = to_bytes(std::as_bytes(std::span(values)));
    return found;
  }

 private:
  std::map<std::string, std::vector<std::int64_t>> columns_;
};

nb::dict log_times(const std::filesystem::path& path) {
  LogReader reader(path);
  Columns columns;
  LogEvent e;
  while (reader.next(e)) {
    switch (e.kind) {
      case EventKind::kState:
        columns.add({"state.sequence", "state.robot_time_ns", "state.receive_time_ns", "state.time_ns"},
                    e.state.sequence, e.state.robot_time_ns, e.state.receive_time_ns, e.time_ns);
        break;
      case EventKind::kPolicyStep:
        columns.add({"policy.state_sequence", "policy.state_robot_time_ns", "policy.state_receive_time_ns",
                     "policy.begin_ns", "policy.observed_ns", "policy.done_ns"},
                    e.output.state_sequence, e.output.state_robot_time_ns, e.output.state_receive_time_ns,
                    e.output.begin_ns, e.output.observed_ns, e.output.done_ns);
        break;
      case EventKind::kCommand:
        columns.add({"command.state_sequence", "command.state_robot_time_ns", "command.state_age_ns",
                     "command.send_time_ns", "command.from_policy", "command.phase", "command.fault"},
                    e.sent.state_sequence, e.sent.state_robot_time_ns, e.sent.state_age_ns, e.sent.send_time_ns,
                    e.sent.from_policy, e.sent.phase, e.sent.fault);
        break;
      case EventKind::kMissedDeadline: columns.add({"missed.time_ns"}, e.time_ns); break;
      default: break;
    }
  }
  return columns.dict();
}

nb::dict log_about(const std::filesystem::path& path) {
  LogReader reader(path);
  std::map<std::string, std::uint64_t> counts;
  LogEvent e;
  while (reader.next(e)) counts[kLogChannels[channel_of(e.kind)].topic] += 1;
  nb::dict found;
  found["run"] = nb::cast(reader.run());
  found["contract"] = reader.contract();
  found["counts"] = nb::cast(counts);
  found["cut"] = reader.cut();
  return found;
}

void bind_log(nb::module_& module) {
  nb::class_<EventRing>(module, "EventRing", "A ring of events with one writer and one reader.")
      .def(nb::init<std::size_t>(), nb::arg("bytes"))
      .def(
          "push",
          [](EventRing& ring, int kind, std::uint64_t order, std::int64_t time_ns, const nb::bytes& payload) {
            return ring.push(static_cast<EventKind>(kind), order, time_ns, {from_bytes(payload)});
          },
          nb::arg("kind"), nb::arg("order"), nb::arg("time_ns"), nb::arg("payload"))
      .def("pop", &pop, "(kind, order, time_ns, payload) of the next event; None: there is none.")
      .def_prop_ro("dropped", &EventRing::dropped)
      .def("push_state", &push_state, nb::arg("order"), nb::arg("time_ns"), nb::arg("state"))
      .def("push_operator", &push_operator, nb::arg("order"), nb::arg("time_ns"), nb::arg("input"))
      .def("push_command", &push_command, nb::arg("order"), nb::arg("time_ns"), nb::arg("command"))
      .def(
          "push_call",
          [](EventRing& ring, std::uint64_t order, std::int64_t time_ns, int kind) {
            return push_call(ring, order, time_ns, static_cast<EventKind>(kind));
          },
          nb::arg("order"), nb::arg("time_ns"), nb::arg("kind"));
  nb::class_<McapWriter>(module, "McapWriter", "A log's file, with one channel of texts.")
      .def(
          "__init__",
          [](McapWriter* self, const std::filesystem::path& path) {
            new (self) McapWriter(path, "", "robot-rl-runtime");
            self->add_channel("/text", "", "", "", "text");
          },
          nb::arg("path"))
      .def(
          "message",
          [](McapWriter& self, std::uint64_t time_ns, const nb::bytes& data) {
            self.message(1, 0, time_ns, from_bytes(data));
          },
          nb::arg("time_ns"), nb::arg("data"))
      .def(
          "attachment",
          [](McapWriter& self, const std::string& name, std::uint64_t time_ns, const nb::bytes& data) {
            self.attachment(name, "text/plain", time_ns, from_bytes(data));
          },
          nb::arg("name"), nb::arg("time_ns"), nb::arg("data"))
      .def("flush", &McapWriter::flush)
      .def("finish", &McapWriter::finish);
  module.def("log_times", &log_times, nb::arg("path"),
             "The times and sequence numbers in a log, by \"<topic>.<field>\": each the bytes of an int64 array.");
  module.def("log_about", &log_about, nb::arg("path"), "Metadata, contract, and how many messages of each topic.");
}

const AddBinder kAdd(bind_log);

}  // namespace
}  // namespace robot_rl

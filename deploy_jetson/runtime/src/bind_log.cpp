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

nb::object pop(EventRing& ring) {
  EventHeader header;
  std::vector<std::byte> payload(kMaxEvent);
  if (!ring.pop(header, payload)) return nb::none();
  return nb::make_tuple(static_cast<int>(header.kind), header.order, header.time_ns,
                        to_bytes(std::span(payload).first(header.bytes)));
}

/// An archive of fields.h: columns of whole numbers by "<topic>.<field>", each the bytes of an int64 array.
class Columns {
 public:
  std::string topic;
  std::map<std::string, std::vector<std::int64_t>> columns;
  template <class T>
  void number(const char* name, T& value) {
    columns[topic + "." + name].push_back(static_cast<std::int64_t>(value));
  }
  void fixed(const char*, auto&) {}
  void list(const char*, auto&...) {}
};

nb::dict log_times(const std::filesystem::path& path) {
  LogReader reader(path);
  Columns all;
  LogEvent e;
  while (reader.next(e)) {
    all.topic = kLogChannels[channel_of(e.kind)].topic + 1;
    switch (e.kind) {
      case EventKind::kState: fields(all, e.state); break;
      case EventKind::kPolicyStep: fields(all, e.output); break;
      case EventKind::kCommand: fields(all, e.sent); break;
      case EventKind::kMissedDeadline: all.topic = "missed"; break;
      default: continue;
    }
    all.number("time_ns", e.time_ns);
  }
  nb::dict found;
  for (const auto& [name, values] : all.columns) found[name.c_str()] = to_bytes(std::as_bytes(std::span(values)));
  return found;
}

nb::dict log_about(const std::filesystem::path& path) {
  LogReader reader(path);
  std::map<std::string, std::uint64_t> counts;
  LogEvent e;
  while (reader.next(e)) counts[kLogChannels[channel_of(e.kind)].topic] += 1;
  return dict_of("run", nb::cast(reader.run()), "contract", reader.contract(), "counts", nb::cast(counts), "cut",
                 reader.cut());
}

void bind_log(nb::module_& module) {
  nb::class_<EventRing>(module, "EventRing", "A ring of events with one writer and one reader.")
      .def(nb::init<std::size_t>(), nb::arg("bytes"))
      .def(
          "push",
          [](EventRing& ring, int kind, std::uint64_t order, std::int64_t time_ns, const nb::bytes& payload) {
            const auto part = from_bytes(payload);
            return ring.push(static_cast<EventKind>(kind), order, time_ns, {&part, 1});
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

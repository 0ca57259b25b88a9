// Python: the events of a log that is still being written.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "bindings.h"
#include "log_reader.h"

namespace nb = nanobind;

namespace robot_rl {
namespace {

/// An archive of log_format.h: a message as a dict, with the names of its definition; lists are NumPy arrays.
class DictFields {
 public:
  template <class T>
  void number(const char* name, T& value) {
    if constexpr (std::is_enum_v<T>) {
      dict[name] = static_cast<int>(value);
    } else {
      dict[name] = value;
    }
  }
  template <class T, std::size_t N>
  void fixed(const char* name, T (&values)[N]) {
    array(name, values, N);
  }
  template <class T, std::size_t N>
  void list(const char* name, T (&values)[N], std::int32_t& count) {
    array(name, values, static_cast<std::size_t>(std::max(count, 0)));
  }
  void list(const char* name, std::vector<float>& values) { array(name, values.data(), values.size()); }
  void text(const char* name, std::string& value) { dict[name] = value; }
  nb::dict dict;

 private:
  template <class T>
  void array(const char* name, const T* values, std::size_t count) {
    dict[name] = nb::cast(to_array(std::span<const T>(values, count), {count}));
  }
};

nb::dict event_dict(LogEvent& event) {
  const auto channel = channel_of(event.kind);
  DictFields fields;
  fields.dict["topic"] = kLogChannels[channel].topic;
  log_fields(fields, channel, event, event.state.measured_count > 0);
  if (event.kind == EventKind::kSwap) fields.dict["bundle"] = swapped_identity(event.text);
  return fields.dict;
}

class LogTail {
 public:
  explicit LogTail(const std::filesystem::path& path) : path_(path) {}

  nb::list read(const std::optional<std::vector<std::string>>& topics) {
    nb::list found;
    if (!is_open()) return found;
    while (reader_->next(event_)) {
      const std::string topic = kLogChannels[channel_of(event_.kind)].topic;
      if (!topics || std::find(topics->begin(), topics->end(), topic) != topics->end()) {
        found.append(event_dict(event_));
      }
    }
    return found;
  }
  bool finished() const { return reader_ && reader_->finished(); }
  McapMap run() const { return reader_ ? reader_->run() : McapMap{}; }
  std::string contract() const { return reader_ ? reader_->contract() : std::string(); }

 private:
  /// The file may not exist yet, or be shorter than its first eight bytes.
  bool is_open() {
    std::error_code code;
    if (reader_) return true;
    if (std::filesystem::file_size(path_, code) < kMcapMagic.size() || code) return false;
    reader_.emplace(LogReader::growing(path_));
    return true;
  }

  std::filesystem::path path_;
  std::optional<LogReader> reader_;
  LogEvent event_;
};

void bind_log_tail(nb::module_& module) {
  nb::class_<LogTail>(module, "LogTail", "Reads a log while another process writes it; the file may not exist yet.")
      .def(nb::init<const std::filesystem::path&>(), nb::arg("path"))
      .def("read", &LogTail::read, nb::arg("topics") = nb::none(),
           "The events that were written since the last call, in order: dicts with the topic and the fields of its "
           "message, lists as NumPy arrays. `topics`: only these, such as (\"/policy\", \"/event\"). Raises UserError: "
           "the file is damaged, or no log.")
      .def_prop_ro("finished", &LogTail::finished, "Whether the log came to its end, and all of it was read.")
      .def_prop_ro("run", &LogTail::run, "The metadata \"run\"; complete when `read` has returned an event.")
      .def_prop_ro("contract", &LogTail::contract, "The text of contract.json; complete as `run`.");
}

const AddBinder kAdd(bind_log_tail);

}  // namespace
}  // namespace robot_rl

#include "log_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "cdr.h"
#include "crc32.h"
#include "error.h"
#include "settings_table.h"

namespace robot_rl {

namespace {

/// Reads a record's content from front to back; `good` becomes false if it ends too early.
struct Cursor {
  std::span<const std::byte> rest;
  bool good = true;

  template <class T>
  T number() {
    T value{};
    const auto bytes = take(sizeof(T));
    if (good) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> take(std::uint64_t size) {
    good = good && size <= rest.size();
    if (!good) return {};
    const auto found = rest.first(size);
    rest = rest.subspan(size);
    return found;
  }
  std::string string() {
    const auto size = number<std::uint32_t>();
    const auto bytes = take(size);
    return good ? std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) : std::string();
  }
  McapMap map() {
    McapMap found;
    Cursor pairs{take(number<std::uint32_t>())};
    while (good && pairs.good && !pairs.rest.empty()) {
      const auto key = pairs.string();
      found[key] = pairs.string();
    }
    good = good && pairs.good;
    return found;
  }
};

std::size_t channel_named(const std::string& topic) {
  for (std::size_t k = 0; k < kLogChannels.size(); ++k) {
    if (topic == kLogChannels[k].topic) return k;
  }
  return kLogChannels.size();
}

/// Shorten the lists to the size that was read.
void make_fresh(LogEvent& event, bool measured) {
  event.state.measured_count = measured ? -1 : 0;
  event.state.joints = event.state.feet = -1;
  event.input.size = event.output.actions = event.sent.joints = -1;
  event.finding = {};
}

}  // namespace

LogReader::LogReader(const std::filesystem::path& path, bool growing)
    : path_(path), growing_(growing), schemas_(kLogChannels.size()), channels_(kLogChannels.size()) {
  std::error_code code;
  file_.open(path, std::ios::binary);
  size_ = std::filesystem::is_regular_file(path, code) ? std::filesystem::file_size(path, code) : 0;
  if (!file_ || code || size_ == 0)
    throw UserError("log " + path.string() + ": cannot be read; name a log file *.mcap");
  std::string magic(kMcapMagic.size(), '\0');
  file_.read(magic.data(), static_cast<std::streamsize>(magic.size()));
  if (!file_ || magic != kMcapMagic) refuse("not an MCAP file; name a log that robot-rl-infer wrote with --log");
  at_ = magic.size();
  if (growing) return;
  while (!begun_ && read_record(record_)) take_record();
  check_head();
}

void LogReader::refuse(const std::string& what) const { throw UserError("log " + path_.string() + ": " + what); }

const std::string& LogReader::run(const std::string& key) const {
  const auto found = run_.find(key);
  if (found == run_.end()) refuse("its metadata '" + std::string(kLogRun) + "' lacks '" + key + "'");
  return found->second;
}

/// Whether the writer finished the file, so that nothing can be missing.
bool LogReader::is_finished() {
  std::string magic(kMcapMagic.size(), '\0');
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(size_ - magic.size()));
  file_.read(magic.data(), static_cast<std::streamsize>(magic.size()));
  return file_ && size_ >= 2 * magic.size() && magic == kMcapMagic;
}

bool LogReader::read_record(Record& record) {
  if (ended_) return false;
  if (growing_) look_again();
  std::byte head[9];
  const auto stop = [&] {
    if (growing_) return false;
    if (is_finished()) refuse("damaged: the record at byte " + std::to_string(at_) + " goes beyond the file's end");
    cut_ = ended_ = true;
    return false;
  };
  if (size_ - at_ < sizeof(head)) return stop();
  file_.read(reinterpret_cast<char*>(head), sizeof(head));
  Cursor cursor{head};
  record.op = static_cast<McapOp>(cursor.number<std::uint8_t>());
  const auto length = cursor.number<std::uint64_t>();
  if (!file_ || length > size_ - at_ - sizeof(head)) return stop();
  record.at = at_;
  record.content.resize(length);
  file_.read(reinterpret_cast<char*>(record.content.data()), static_cast<std::streamsize>(length));
  if (!file_) refuse("cannot be read: " + std::generic_category().message(errno));
  at_ += sizeof(head) + length;
  ended_ = record.op == McapOp::kDataEnd || record.op == McapOp::kFooter;
  return !ended_;
}

/// Of a growing log: the file is longer now, and what the stream has buffered is old.
void LogReader::look_again() {
  std::error_code code;
  const auto size = std::filesystem::file_size(path_, code);
  if (!code) size_ = std::max(size_, size);
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(at_));
}

void LogReader::take_record() {
  const std::span<const std::byte> content = record_.content;
  switch (record_.op) {
    case McapOp::kMetadata: take_metadata(content); break;
    case McapOp::kAttachment: take_attachment(content); break;
    case McapOp::kSchema: take_schema(content); break;
    case McapOp::kChannel: take_channel(content); break;
    case McapOp::kChunk:
      check_head();
      open_chunk();
      break;
    default: break;
  }
}

/// What stands before the first message is there, and this program reads it.
void LogReader::check_head() {
  if (begun_) return;
  if (run_.empty() || run("format") != kLogFormat)
    refuse("not a log of robot-rl-infer: the metadata 'run' is missing");
  if (run("version") != kLogVersion && run("version") != kLogVersionBefore)
    refuse("version " + run("version") + " of a log; this program reads " + kLogVersionBefore + " and " + kLogVersion);
  if (contract_.empty() || model_.empty())
    refuse("it ends before its first event: contract.json or policy.onnx is missing");
  begun_ = true;
}

void LogReader::take_metadata(std::span<const std::byte> content) {
  Cursor cursor{content};
  const auto name = cursor.string();
  const auto values = cursor.map();
  if (!cursor.good) refuse("damaged: a metadata record is cut");
  if (name == kLogRun) run_ = values;
  if (name == kLogSettings) take_settings(values);
}

void LogReader::take_settings(const McapMap& values) {
  for (const auto& row : setting_table()) {
    const auto found = values.find(std::string(row.name));
    const bool may_lack = row.explores || row.later ||
                          std::holds_alternative<std::optional<int>*>(row.slot(settings_));
    if (found != values.end()) {
      set_setting(settings_, found->first, found->second);
    } else if (!may_lack) {
      refuse("its settings lack '" + std::string(row.name) + "'");
    }
  }
}

void LogReader::take_attachment(std::span<const std::byte> content) {
  if (content.size() < 4) refuse("damaged: an attachment is cut");
  Cursor cursor{content}, end{content.last(4)};
  cursor.number<std::uint64_t>();
  cursor.number<std::uint64_t>();
  const auto name = cursor.string();
  cursor.string();
  const auto data = cursor.take(cursor.number<std::uint64_t>());
  if (!cursor.good || cursor.rest.size() != 4) refuse("damaged: an attachment is cut");
  const auto crc = end.number<std::uint32_t>();
  if (crc32(content.first(content.size() - 4)) != crc)
    refuse("damaged: the checksum of attachment '" + name + "' is wrong");
  if (name == kLogContract) contract_.assign(reinterpret_cast<const char*>(data.data()), data.size());
  if (name == kLogModel) model_.assign(data.begin(), data.end());
  take_swap_file(name, data);
}

void LogReader::take_swap_file(const std::string& name, std::span<const std::byte> data) {
  const auto dot = name.rfind('.');
  const std::string of = name.substr(0, dot), identity = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (of != kLogContract && of != kLogModel) return;
  if (swapped_.identity != identity) swapped_ = {identity, {}, {}};
  if (of == kLogContract) swapped_.contract.assign(reinterpret_cast<const char*>(data.data()), data.size());
  if (of == kLogModel) swapped_.model.assign(data.begin(), data.end());
}

void LogReader::take_schema(std::span<const std::byte> content) {
  Cursor cursor{content};
  const auto id = cursor.number<std::uint16_t>();
  const auto name = cursor.string(), encoding = cursor.string(), text = cursor.string();
  for (std::size_t k = 0; k < kLogChannels.size(); ++k) {
    if (!cursor.good || name != kLogChannels[k].schema || encoding != "ros2msg") continue;
    for (const bool measured : {false, true}) {
      CdrDefinition definition;
      LogEvent none;
      log_fields(definition, k, none, measured);
      if (text != definition.definition()) continue;
      schemas_[k] = id;
      if (k == channel_of(EventKind::kState)) measured_ = measured;
    }
  }
}

void LogReader::take_channel(std::span<const std::byte> content) {
  Cursor cursor{content};
  const auto id = cursor.number<std::uint16_t>(), schema = cursor.number<std::uint16_t>();
  const auto topic = cursor.string();
  const auto channel = channel_named(topic);
  if (!cursor.good || channel == kLogChannels.size()) return;
  if (id == 0 || schema == 0 || schemas_[channel] != schema)
    refuse("channel " + topic + " holds messages of another form than this program's");
  channels_[channel] = id;
}

void LogReader::open_chunk() {
  Cursor cursor{record_.content};
  cursor.number<std::uint64_t>();
  cursor.number<std::uint64_t>();
  const auto size = cursor.number<std::uint64_t>();
  const auto crc = cursor.number<std::uint32_t>();
  const auto compression = cursor.string();
  const auto records = cursor.take(cursor.number<std::uint64_t>());
  const auto where = " at byte " + std::to_string(record_.at);
  if (!cursor.good || !cursor.rest.empty()) refuse("damaged: the chunk" + where + " is cut");
  if (!compression.empty()) refuse("its chunks are compressed (" + compression + "); a log as it was written is not");
  if (records.size() != size || crc32(records) != crc)
    refuse("damaged: the checksum of the chunk" + where + " is wrong");
  chunk_end_ = record_.content.size();
  chunk_at_ = chunk_end_ - records.size();
}

bool LogReader::next(LogEvent& event) {
  for (;;) {
    while (chunk_at_ < chunk_end_) {
      if (take_message(event)) return true;
    }
    if (!read_record(record_)) return false;
    take_record();
  }
}

bool LogReader::take_message(LogEvent& event) {
  Cursor cursor{std::span<const std::byte>(record_.content).subspan(chunk_at_, chunk_end_ - chunk_at_)};
  const auto whole = cursor.rest.size();
  const auto op = static_cast<McapOp>(cursor.number<std::uint8_t>());
  Cursor message{cursor.take(cursor.number<std::uint64_t>())};
  if (!cursor.good) refuse("damaged: a message in the chunk at byte " + std::to_string(record_.at) + " is cut");
  chunk_at_ += whole - cursor.rest.size();
  if (op != McapOp::kMessage) return false;
  const auto id = message.number<std::uint16_t>();
  message.take(sizeof(std::uint32_t) + 2 * sizeof(std::uint64_t));
  for (std::size_t k = 0; k < channels_.size(); ++k) {
    if (channels_[k] != id || id == 0) continue;
    CdrReader reader(message.rest);
    make_fresh(event, measured_);
    log_fields(reader, k, event, measured_);
    if (k + 1 < kLogChannels.size()) event.kind = static_cast<EventKind>(k);
    if (!message.good || !reader.good() || event.kind > EventKind::kSwap || channel_of(event.kind) != k) {
      refuse(std::string("damaged: a message of ") + kLogChannels[k].topic + " in the chunk at byte " +
             std::to_string(record_.at) + " cannot be read");
    }
    return true;
  }
  return false;
}

}  // namespace robot_rl

#include "mcap.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "crc32.h"

namespace robot_rl {

namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 19;
constexpr std::size_t kPieceBytes = std::size_t{1} << 16;
constexpr std::size_t kRecordHead = 9;  // operation and length

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string record(McapOp op, std::string_view content) {
  McapBytes bytes;
  bytes.number(static_cast<std::uint8_t>(op));
  bytes.number<std::uint64_t>(content.size());
  bytes.raw(content);
  return bytes.text();
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw std::system_error(errno, std::generic_category());
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

McapSpill::McapSpill(const std::filesystem::path& log_path) {
  std::string name = log_path.string() + ".XXXXXX";
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) throw std::system_error(errno, std::generic_category());
  ::unlink(name.c_str());
}

McapSpill::~McapSpill() { ::close(file_); }

void McapSpill::add(McapOp op, std::string_view content) {
  const auto text = record(op, content);
  write_all(file_, text);
  bytes_ += text.size();
  ++count_;
}

std::string_view McapSpill::read_piece(std::uint64_t at, std::string& piece) const {
  piece.resize(std::min<std::uint64_t>(bytes_ - at, kPieceBytes));
  auto count = ::pread(file_, piece.data(), piece.size(), static_cast<off_t>(at));
  while (count < 0 && errno == EINTR) count = ::pread(file_, piece.data(), piece.size(), static_cast<off_t>(at));
  if (count <= 0) throw std::system_error(count < 0 ? errno : EIO, std::generic_category());
  piece.resize(static_cast<std::size_t>(count));
  return piece;
}

void McapBytes::string(std::string_view value) {
  number(static_cast<std::uint32_t>(value.size()));
  text_ += value;
}

void McapBytes::map(const McapMap& value) {
  McapBytes pairs;
  for (const auto& [key, text] : value) {
    pairs.string(key);
    pairs.string(text);
  }
  string(pairs.text());
}

void McapBytes::raw(std::span<const std::byte> value) {
  text_.append(reinterpret_cast<const char*>(value.data()), value.size());
}

McapWriter::McapWriter(const std::filesystem::path& path, std::string_view profile, std::string_view library)
    : chunk_index_(path), metadata_index_(path), attachment_index_(path) {
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) throw std::system_error(errno, std::generic_category());
  chunk_.reserve(kChunkBytes + (std::size_t{1} << 17));
  McapBytes header;
  header.string(profile);
  header.string(library);
  try {
    write(kMcapMagic);
    write_record(McapOp::kHeader, header.text());
  } catch (...) {  // no destructor runs
    ::close(file_);
    ::unlink(path.c_str());
    throw;
  }
}

McapWriter::~McapWriter() {
  if (file_ >= 0) ::close(file_);
}

void McapWriter::write(std::string_view text) {
  crc_ = crc32(as_bytes(text), crc_);
  write_all(file_, text);
  at_ += text.size();
}

McapWriter::Place McapWriter::write_record(McapOp op, std::string_view content) {
  const auto at = at_;
  McapBytes head;
  head.number(static_cast<std::uint8_t>(op));
  head.number<std::uint64_t>(content.size());
  write(head.text());
  write(content);
  return {at, content.size() + kRecordHead};
}

std::uint16_t McapWriter::add_channel(std::string_view topic, std::string_view schema, std::string_view schema_encoding,
                                      std::string_view schema_text, std::string_view message_encoding) {
  const auto channel = static_cast<std::uint16_t>(channels_.size() + 1), schema_id = channel;
  McapBytes first, second;
  first.number(schema_id);
  first.string(schema);
  first.string(schema_encoding);
  first.string(schema_text);
  second.number(channel);
  second.number(schema_id);
  second.string(topic);
  second.string(message_encoding);
  second.map({});
  channels_.push_back({record(McapOp::kSchema, first.text()), record(McapOp::kChannel, second.text()), 0, {}});
  write(channels_.back().schema_record);
  write(channels_.back().channel_record);
  return channel;
}

void McapWriter::metadata(std::string_view name, const McapMap& values) {
  flush();
  McapBytes content, index;
  content.string(name);
  content.map(values);
  const auto place = write_record(McapOp::kMetadata, content.text());
  index.number(place.at);
  index.number(place.length);
  index.string(name);
  metadata_index_.add(McapOp::kMetadataIndex, index.text());
}

void McapWriter::attachment(std::string_view name, std::string_view media_type, std::uint64_t time_ns,
                            std::span<const std::byte> data) {
  flush();
  McapBytes content, index;
  content.number(time_ns);
  content.number(time_ns);
  content.string(name);
  content.string(media_type);
  content.number<std::uint64_t>(data.size());
  content.raw(data);
  content.number(crc32(as_bytes(content.text())));
  const auto place = write_record(McapOp::kAttachment, content.text());
  index.number(place.at);
  index.number(place.length);
  index.number(time_ns);
  index.number(time_ns);
  index.number<std::uint64_t>(data.size());
  index.string(name);
  index.string(media_type);
  attachment_index_.add(McapOp::kAttachmentIndex, index.text());
}

void McapWriter::message(std::uint16_t channel, std::uint32_t sequence, std::uint64_t time_ns,
                         std::span<const std::byte> data) {
  auto& owner = channels_.at(channel - 1u);
  const bool first = chunk_.empty();
  owner.index.push_back({time_ns, chunk_.size()});
  owner.messages += 1;
  McapBytes head;
  head.number(static_cast<std::uint8_t>(McapOp::kMessage));
  head.number<std::uint64_t>(22 + data.size());
  head.number(channel);
  head.number(sequence);
  head.number(time_ns);
  head.number(time_ns);
  chunk_ += head.text();
  chunk_.append(reinterpret_cast<const char*>(data.data()), data.size());
  chunk_first_ns_ = first ? time_ns : std::min(chunk_first_ns_, time_ns);
  chunk_last_ns_ = first ? time_ns : std::max(chunk_last_ns_, time_ns);
  first_ns_ = messages_ == 0 ? time_ns : std::min(first_ns_, time_ns);
  last_ns_ = std::max(last_ns_, time_ns);
  messages_ += 1;
  if (chunk_.size() >= kChunkBytes) flush();
}

void McapWriter::flush() {
  if (chunk_.empty()) return;
  McapBytes head, offsets, index;
  head.number(chunk_first_ns_);
  head.number(chunk_last_ns_);
  head.number<std::uint64_t>(chunk_.size());
  head.number(crc32(as_bytes(chunk_)));
  head.string("");  // no compression
  head.number<std::uint64_t>(chunk_.size());
  McapBytes start;
  start.number(static_cast<std::uint8_t>(McapOp::kChunk));
  start.number<std::uint64_t>(head.text().size() + chunk_.size());
  const auto chunk_at = at_;
  write(start.text());
  write(head.text());
  write(chunk_);
  const auto chunk_length = at_ - chunk_at, indexes_at = at_;
  for (std::size_t k = 0; k < channels_.size(); ++k) {
    auto& channel = channels_[k];
    if (channel.index.empty()) continue;
    const auto id = static_cast<std::uint16_t>(k + 1);
    McapBytes content, pairs;
    for (const auto& entry : channel.index) {
      pairs.number(entry.time_ns);
      pairs.number(entry.offset);
    }
    content.number(id);
    content.string(pairs.text());
    offsets.number(id);
    offsets.number(write_record(McapOp::kMessageIndex, content.text()).at);
    channel.index.clear();
  }
  index.number(chunk_first_ns_);
  index.number(chunk_last_ns_);
  index.number(chunk_at);
  index.number(chunk_length);
  index.string(offsets.text());
  index.number(at_ - indexes_at);
  index.string("");
  index.number<std::uint64_t>(chunk_.size());
  index.number<std::uint64_t>(chunk_.size());
  chunk_index_.add(McapOp::kChunkIndex, index.text());
  chunk_.clear();
}

/// Note where a group of records of one kind is, which ends here.
void McapWriter::add_offset(McapOp op, std::uint64_t start, McapBytes& offsets) const {
  if (start == at_) return;
  McapBytes content;
  content.number(static_cast<std::uint8_t>(op));
  content.number(start);
  content.number<std::uint64_t>(at_ - start);
  offsets.raw(record(McapOp::kSummaryOffset, content.text()));
}

void McapWriter::write_group(McapOp op, const McapSpill& records, McapBytes& offsets) {
  const auto start = at_;
  records.read([this](std::string_view piece) { write(piece); });
  add_offset(op, start, offsets);
}

void McapWriter::write_summary() {
  McapBytes counts, statistics, offsets, footer;
  const auto summary_at = at_;
  crc_ = 0;
  for (const auto& channel : channels_) write(channel.schema_record);
  add_offset(McapOp::kSchema, summary_at, offsets);
  const auto channels_at = at_;
  for (std::size_t k = 0; k < channels_.size(); ++k) {
    write(channels_[k].channel_record);
    counts.number(static_cast<std::uint16_t>(k + 1));
    counts.number(channels_[k].messages);
  }
  add_offset(McapOp::kChannel, channels_at, offsets);
  statistics.number(messages_);
  statistics.number(static_cast<std::uint16_t>(channels_.size()));
  statistics.number(static_cast<std::uint32_t>(channels_.size()));
  statistics.number(attachment_index_.count());
  statistics.number(metadata_index_.count());
  statistics.number(chunk_index_.count());
  statistics.number(first_ns_);
  statistics.number(last_ns_);
  statistics.string(counts.text());
  const auto statistics_at = write_record(McapOp::kStatistics, statistics.text()).at;
  add_offset(McapOp::kStatistics, statistics_at, offsets);
  write_group(McapOp::kChunkIndex, chunk_index_, offsets);
  write_group(McapOp::kAttachmentIndex, attachment_index_, offsets);
  write_group(McapOp::kMetadataIndex, metadata_index_, offsets);
  const auto offsets_at = at_;
  write(offsets.text());
  // The footer's checksum covers everything from the start of the summary to itself.
  footer.number(static_cast<std::uint8_t>(McapOp::kFooter));
  footer.number<std::uint64_t>(20);
  footer.number(summary_at);
  footer.number(offsets_at);
  footer.number(crc32(as_bytes(footer.text()), crc_));
  write(footer.text());
}

void McapWriter::finish() {
  flush();
  McapBytes end;
  end.number(crc_);
  write_record(McapOp::kDataEnd, end.text());
  write_summary();
  write(kMcapMagic);
  if (::fsync(file_) != 0 && errno != EINVAL && errno != EROFS) throw std::system_error(errno, std::generic_category());
}

}  // namespace robot_rl

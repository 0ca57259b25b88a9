// Writes MCAP files (mcap.dev/spec), version 0: chunks without compression, checksums, and the indexes at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace robot_rl {

/// Numbers of MCAP's records.
enum class McapOp : std::uint8_t {
  kHeader = 1,
  kFooter = 2,
  kSchema = 3,
  kChannel = 4,
  kMessage = 5,
  kChunk = 6,
  kMessageIndex = 7,
  kChunkIndex = 8,
  kAttachment = 9,
  kAttachmentIndex = 10,
  kStatistics = 11,
  kMetadata = 12,
  kMetadataIndex = 13,
  kSummaryOffset = 14,
  kDataEnd = 15,
};

inline constexpr std::string_view kMcapMagic{"\x89MCAP0\r\n", 8};

using McapMap = std::map<std::string, std::string>;

/// Appends to a record's content, little-endian.
class McapBytes {
 public:
  template <class T>
  void number(T value) {
    for (std::size_t k = 0; k < sizeof(T); ++k)
      text_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * k));
  }
  void string(std::string_view value);
  void map(const McapMap& value);
  void raw(std::string_view value) { text_ += value; }
  void raw(std::span<const std::byte> value);
  const std::string& text() const { return text_; }
  void clear() { text_.clear(); }

 private:
  std::string text_;
};

/// Records of the summary, kept in a file without a name until the summary is written: memory does not grow with their
/// number. Every call may throw std::system_error.
class McapSpill {
 public:
  /// Create the file in the folder of the log.
  explicit McapSpill(const std::filesystem::path& log_path);
  ~McapSpill();
  McapSpill(const McapSpill&) = delete;
  McapSpill& operator=(const McapSpill&) = delete;
  void add(McapOp op, std::string_view content);
  std::uint32_t count() const { return count_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Call `use(text)` with all records, piece by piece.
  template <class Use>
  void read(Use&& use) const {
    std::string piece;
    for (std::uint64_t at = 0; at < bytes_; at += piece.size()) use(read_piece(at, piece));
  }

 private:
  std::string_view read_piece(std::uint64_t at, std::string& piece) const;

  int file_ = -1;
  std::uint32_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

/// One file being written. Every call may throw std::system_error if writing fails.
class McapWriter {
 public:
  /// Create the file; it must not exist.
  McapWriter(const std::filesystem::path& path, std::string_view profile, std::string_view library);
  /// Closes the descriptor; a file that was not finished has no indexes.
  ~McapWriter();
  McapWriter(const McapWriter&) = delete;
  McapWriter& operator=(const McapWriter&) = delete;

  /// Add a schema and its channel; returns the channel's number. All before the first message.
  std::uint16_t add_channel(std::string_view topic, std::string_view schema, std::string_view schema_encoding,
                            std::string_view schema_text, std::string_view message_encoding);
  void metadata(std::string_view name, const McapMap& values);
  void attachment(std::string_view name, std::string_view media_type, std::uint64_t time_ns,
                  std::span<const std::byte> data);
  /// `time_ns` since 1970. Kept until a chunk is full or flushed.
  void message(std::uint16_t channel, std::uint32_t sequence, std::uint64_t time_ns, std::span<const std::byte> data);
  /// Write the open chunk: everything up to here can be read even if the program dies.
  void flush();
  /// Write chunk, indexes and footer.
  void finish();
  /// Bytes in the file so far.
  std::uint64_t bytes() const { return at_; }

 private:
  struct Place {  // of a record in the file: offset and length with its header
    std::uint64_t at = 0, length = 0;
  };
  struct Index {
    std::uint64_t time_ns, offset;
  };
  struct Channel {
    std::string schema_record, channel_record;
    std::uint64_t messages = 0;
    std::vector<Index> index;  // of the open chunk
  };
  Place write_record(McapOp op, std::string_view content);
  void write(std::string_view text);
  void write_summary();
  void add_offset(McapOp op, std::uint64_t start, McapBytes& offsets) const;
  void write_group(McapOp op, const McapSpill& records, McapBytes& offsets);

  int file_ = -1;
  std::uint64_t at_ = 0;
  std::uint32_t crc_ = 0;  // of the data section, then of the summary
  std::vector<Channel> channels_;
  McapSpill chunk_index_, metadata_index_, attachment_index_;
  std::string chunk_;
  std::uint64_t chunk_first_ns_ = 0, chunk_last_ns_ = 0, first_ns_ = 0, last_ns_ = 0, messages_ = 0;
};

}  // namespace robot_rl

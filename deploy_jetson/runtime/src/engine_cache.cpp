#include "engine_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "error.h"
#include "sha256.h"

namespace robot_rl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "robot-rl engine 1\n";
constexpr std::size_t kHashSize = 64;

std::string plain(const std::string& text) {
  std::string name;
  for (const char sign : text) name += std::isalnum(static_cast<unsigned char>(sign)) || sign == '.' ? sign : '_';
  return name;
}

/// Only the user of this program, or root, may have written there.
bool trusted(const fs::path& path, std::string& why) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return false;
  const bool own = status.st_uid == geteuid() || status.st_uid == 0;
  if (own && !S_ISLNK(status.st_mode) && !(status.st_mode & (S_IWGRP | S_IWOTH))) return true;
  why = "engine cache: '" + path.string() + "' is a link, another user's, or others may write to it; it is not used "
        "(chmod go-w)";
  return false;
}

bool write_all(int file, std::span<const std::byte> data) {
  while (!data.empty()) {
    const auto written = ::write(file, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data = data.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::string EngineKey::file_name() const {
  return model_sha256.substr(0, 32) + "-trt" + plain(tensorrt) + "-cuda" + plain(cuda) + "-" + plain(gpu) + "-" +
         plain(precision) + ".engine";
}

fs::path engine_folder(const fs::path& option) {
  if (!option.empty()) return option;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') return fs::path(cache) / "robot-rl";
  if (const char* home = std::getenv("HOME"); home && *home == '/') return fs::path(home) / ".cache" / "robot-rl";
  throw UserError("--engine-cache is empty, and neither XDG_CACHE_HOME nor HOME is set; name a folder for engines");
}

std::vector<std::byte> load_engine(const fs::path& folder, const EngineKey& key, std::string& why) {
  const auto path = folder / key.file_name();
  why.clear();
  if (!trusted(folder, why) || !trusted(path, why)) return {};
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto head = kMagic.size() + kHashSize;
  const auto engine = std::as_bytes(std::span(text)).subspan(std::min(head, text.size()));
  if (!text.starts_with(kMagic) || engine.empty() || text.substr(kMagic.size(), kHashSize) != sha256(engine)) {
    why = "engine cache: '" + path.string() + "' is damaged; it is built again";
    return {};
  }
  return {engine.begin(), engine.end()};
}

bool store_engine(const fs::path& folder, const EngineKey& key, std::span<const std::byte> engine, std::string& why) {
  const auto path = folder / key.file_name();
  const auto fresh = path.string() + "." + std::to_string(getpid()) + ".new";
  std::error_code error;
  if (!fs::exists(folder, error)) {
    fs::create_directories(folder, error);
    if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  }
  const int file = error ? -1 : open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool done = file >= 0;
  if (done) {
    const auto hash = sha256(engine);
    done = write_all(file, std::as_bytes(std::span(kMagic))) && write_all(file, std::as_bytes(std::span(hash))) &&
           write_all(file, engine) && fsync(file) == 0;
    done = close(file) == 0 && done && std::rename(fresh.c_str(), path.c_str()) == 0;
  }
  if (done) return true;
  why = "engine cache: '" + path.string() + "' cannot be written (" + (error ? error.message() : std::strerror(errno)) +
        "); the engine will be built again at the next start";
  if (file >= 0) unlink(fresh.c_str());
  return false;
}

}  // namespace robot_rl

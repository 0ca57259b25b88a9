#include "signature.h"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace robot_rl {
namespace {

constexpr int kEd25519 = 1087;  // OpenSSL's number of the algorithm
constexpr std::size_t kKeyBytes = 32, kSignatureBytes = 64;

/// The functions of libcrypto that are needed, of any version from 1.1.1 on.
struct Crypto {
  void* (*new_public_key)(int, void*, const unsigned char*, std::size_t);
  void (*free_key)(void*);
  void* (*new_context)();
  void (*free_context)(void*);
  int (*verify_init)(void*, void**, const void*, void*, void*);
  int (*verify)(void*, const unsigned char*, std::size_t, const unsigned char*, std::size_t);
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* const symbol = dlsym(library, name);
  if (!symbol) throw UserError(std::string("the signature cannot be checked: libcrypto has no ") + name);
  std::memcpy(&function, &symbol, sizeof(function));
}

const Crypto& crypto() {
  static const Crypto kCrypto = [] {
    void* library = nullptr;
    for (const auto name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"}) {
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library) {
      throw UserError(
          "the signature cannot be checked: there is no libcrypto.so.3; install OpenSSL 3 (Debian: libssl3)");
    }
    Crypto found{};
    find(library, "EVP_PKEY_new_raw_public_key", found.new_public_key);
    find(library, "EVP_PKEY_free", found.free_key);
    find(library, "EVP_MD_CTX_new", found.new_context);
    find(library, "EVP_MD_CTX_free", found.free_context);
    find(library, "EVP_DigestVerifyInit", found.verify_init);
    find(library, "EVP_DigestVerify", found.verify);
    return found;
  }();
  return kCrypto;
}

/// The bytes of base64 text; empty if it is not base64.
std::vector<unsigned char> decode_base64(std::string_view text) {
  static constexpr std::string_view kSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes;
  unsigned value = 0;
  int bits = 0;
  for (const char sign : text) {
    if (sign == '\n' || sign == '\r' || sign == ' ' || sign == '=') continue;
    const auto digit = kSigns.find(sign);
    if (digit == std::string_view::npos) return {};
    value = value << 6 | static_cast<unsigned>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<unsigned char>(value >> bits & 0xff));
    }
  }
  return bytes;
}

/// The key within SubjectPublicKeyInfo: a fixed header of 12 bytes (RFC 8410), then the 32 bytes of the point.
std::array<unsigned char, kKeyBytes> read_key(const std::filesystem::path& path) {
  static constexpr unsigned char kHead[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
  static constexpr std::string_view kBegin = "-----BEGIN PUBLIC KEY-----", kEnd = "-----END PUBLIC KEY-----";
  const auto fail = [&path](const std::string& why) -> void {
    throw UserError("the key '" + path.string() + "' " + why + "; a PEM file with an Ed25519 public key is needed");
  };
  std::ifstream file(path, std::ios::binary);
  if (!file || !std::filesystem::is_regular_file(path)) fail("cannot be read");
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const auto begin = text.find(kBegin), end = text.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin + kBegin.size())
    fail("is not a public key");
  const auto bytes = decode_base64(std::string_view(text).substr(begin + kBegin.size(), end - begin - kBegin.size()));
  std::array<unsigned char, kKeyBytes> key{};
  if (bytes.size() != sizeof(kHead) + kKeyBytes || std::memcmp(bytes.data(), kHead, sizeof(kHead)) != 0) {
    fail("is not an Ed25519 key");
  }
  std::memcpy(key.data(), bytes.data() + sizeof(kHead), kKeyBytes);
  return key;
}

}  // namespace

bool is_signed_by(std::span<const std::byte> data, std::span<const std::byte> signature,
                  const std::filesystem::path& path) {
  const auto key = read_key(path);
  const auto& library = crypto();
  if (signature.size() != kSignatureBytes) return false;
  void* const public_key = library.new_public_key(kEd25519, nullptr, key.data(), key.size());
  void* const context = library.new_context();
  const bool right = public_key && context &&
                     library.verify_init(context, nullptr, nullptr, nullptr, public_key) == 1 &&
                     library.verify(context, reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                                    reinterpret_cast<const unsigned char*>(data.data()), data.size()) == 1;
  if (context) library.free_context(context);
  if (public_key) library.free_key(public_key);
  return right;
}

}  // namespace robot_rl

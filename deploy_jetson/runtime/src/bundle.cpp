#include "bundle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "golden.h"
#include "json.h"
#include "onnx_check.h"
#include "sha256.h"
#include "signature.h"

namespace robot_rl {
namespace {

using Bytes = std::vector<std::byte>;

constexpr const char *kContract = "contract.json", *kGolden = "golden.npz", *kModel = "policy.onnx",
                     *kSums = "SHA256SUMS", *kSignature = "SHA256SUMS.sig", *kCertificate = "certificate.json";
constexpr std::array kFiles = {kContract, kGolden, kModel};

std::size_t max_bytes(std::string_view name) {
  if (name == kContract || name == kCertificate) return 1u << 20;
  if (name == kSums || name == kSignature) return 1u << 12;
  return 512u << 20;
}

/// A file that is closed by its destructor.
struct Descriptor {
  explicit Descriptor(const std::filesystem::path& path)
      : number(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

/// Read a whole regular file once; a link is not followed.
Bytes read_file(const std::filesystem::path& path) {
  const std::string where = "policy bundle: " + path.string();
  const Descriptor file(path);
  struct stat status{};
  if (file.number < 0 && errno != ELOOP) {
    throw ContractError(where + " cannot be read (" + std::strerror(errno) + "); export it again");
  }
  if (file.number < 0 || fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw ContractError(where + " is not a regular file; a bundle may contain only regular files");
  }
  const auto size = static_cast<std::size_t>(status.st_size), most = max_bytes(path.filename().string());
  if (size > most) {
    throw ContractError(where + " has " + std::to_string(size) + " bytes; " + std::to_string(most) + " are the most");
  }
  Bytes data(size);
  std::size_t done = 0;
  while (done < size) {
    const auto got = read(file.number, data.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ContractError(where + " cannot be read (" + std::strerror(errno) + "); export it again");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  data.resize(done);
  return data;
}

/// Whether a file is one that SHA256SUMS names; the certificate is optional.
bool is_hashed(std::string_view name) {
  return name == kCertificate || std::find(kFiles.begin(), kFiles.end(), name) != kFiles.end();
}

void check_names(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    throw UserError("policy bundle '" + path.string() + "': no such directory; robot-rl export writes one");
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    names.push_back(entry.path().filename().string());
  if (error) throw UserError("policy bundle '" + path.string() + "' cannot be listed (" + error.message() + ")");
  std::sort(names.begin(), names.end());
  const auto has = [&names](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const std::string where = "policy bundle '" + path.string() + "': ";
  for (const auto name : {kContract, kGolden, kModel, kSums}) {
    if (!has(name)) throw ContractError(where + name + " is missing; export the bundle again");
  }
  for (const auto& name : names) {
    if (name == kSums || name == kSignature || is_hashed(name)) continue;
    throw ContractError(where + shown(name) + " is not a file of a bundle; remove it");
  }
}

std::string_view text_of(const Bytes& data) { return {reinterpret_cast<const char*>(data.data()), data.size()}; }

bool is_hash(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::map<std::string, std::string, std::less<>> parse_sums(std::string_view text) {
  std::map<std::string, std::string, std::less<>> sums;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto gap = line.find("  ");
    const auto name = gap == std::string_view::npos ? std::string_view() : line.substr(gap + 2);
    if (!is_hashed(name)) {
      throw ContractError("SHA256SUMS names " + shown(name) +
                          "; it must name contract.json, golden.npz, policy.onnx and no path");
    }
    if (!is_hash(line.substr(0, gap)) || sums.contains(name)) {
      throw ContractError("SHA256SUMS: the line of " + std::string(name) + " is " + shown(line.substr(0, 80)) +
                          "; one line of 64 hexadecimal digits, two spaces, name");
    }
    sums.emplace(name, line.substr(0, gap));
  }
  for (const auto name : kFiles) {
    if (!sums.contains(name))
      throw ContractError(std::string("SHA256SUMS does not name ") + name + "; export the bundle again");
  }
  return sums;
}

/// The lines of a certificate, which must be of this network.
std::vector<std::string> certificate_lines(std::string_view text, const std::string& model_hash) {
  const Json value = parse_json(text, kCertificate);
  const Json *model = value.find("model"), *lines = value.find("lines");
  if (model == nullptr || lines == nullptr) {
    throw ContractError("certificate.json: model or lines is missing; robot-rl certify writes it");
  }
  if (read_text(*model, "certificate.json: model") != model_hash) {
    throw ContractError("certificate.json is of another network; robot-rl certify writes one of this");
  }
  std::vector<std::string> found;
  for (const auto& line : read_list(*lines, "certificate.json: lines")) {
    found.push_back(read_text(line, "certificate.json: lines"));
  }
  return found;
}

void check_signature(const std::filesystem::path& path, const Bytes& sums, const std::filesystem::path& key) {
  const std::string where = "policy bundle '" + path.string() + "': ";
  std::error_code error;
  if (!std::filesystem::is_regular_file(key, error)) {
    throw UserError("the key '" + key.string() + "' cannot be read; a PEM file with an Ed25519 public key is needed");
  }
  if (!std::filesystem::exists(std::filesystem::symlink_status(path / kSignature, error))) {
    throw ContractError(where + kSignature + " is missing, and only bundles signed by '" + key.string() +
                        "' are accepted; robot-rl sign writes it");
  }
  if (!is_signed_by(sums, read_file(path / kSignature), key)) {
    throw ContractError(where + kSignature + " is not a signature of SHA256SUMS by '" + key.string() +
                        "'; sign the bundle again");
  }
}

}  // namespace

std::unique_ptr<Bundle> read_bundle(const std::filesystem::path& path, const std::filesystem::path& signed_by) {
  check_names(path);
  const auto sums = read_file(path / kSums);
  if (!signed_by.empty()) check_signature(path, sums, signed_by);
  const auto expected = parse_sums(text_of(sums));
  std::map<std::string_view, Bytes> content;
  std::vector<const char*> names(kFiles.begin(), kFiles.end());
  const bool certified = expected.contains(kCertificate);
  if (certified) names.push_back(kCertificate);
  std::error_code error;
  if (!certified && std::filesystem::exists(std::filesystem::symlink_status(path / kCertificate, error))) {
    throw ContractError("policy bundle '" + path.string() + "': SHA256SUMS does not name certificate.json; remove it");
  }
  for (const auto name : names) {
    content[name] = read_file(path / name);
    if (sha256(content[name]) != expected.find(name)->second) {
      throw ContractError("policy bundle '" + path.string() + "': " + name +
                          " does not have the hash that SHA256SUMS gives");
    }
  }
  auto bundle = std::make_unique<Bundle>();
  bundle->path = path;
  bundle->identity = sha256(sums);
  bundle->contract_text = text_of(content[kContract]);
  bundle->contract = read_contract(bundle->contract_text);
  bundle->golden = read_golden(content[kGolden], bundle->contract);
  check_model(content[kModel], bundle->contract, expected.find(kContract)->second);
  if (certified) {
    bundle->certificate = certificate_lines(text_of(content[kCertificate]), expected.find(kModel)->second);
  }
  bundle->model = std::move(content[kModel]);
  return bundle;
}

}  // namespace robot_rl

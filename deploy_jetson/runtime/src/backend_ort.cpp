// ONNX Runtime on the CPU. The library is loaded at run time, so that only a C++ compiler is needed to build this
// program.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend.h"
#include "network.h"
#include "ort_api.h"

namespace robot_rl {

namespace {

namespace fs = std::filesystem;

/// The newest libonnxruntime.so* of a folder; empty if there is none.
fs::path library_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with("libonnxruntime.so")) found.push_back(entry.path());
  }
  const auto older = [](const fs::path& one, const fs::path& other) {  // 1.9.0 is older than 1.31.1
    return strverscmp(one.filename().c_str(), other.filename().c_str()) < 0;
  };
  return found.empty() ? fs::path() : *std::max_element(found.begin(), found.end(), older);
}

/// Folders that contain this program or module.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  folders.push_back(fs::read_symlink("/proc/self/exe", ignored).parent_path());
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&library_in), &self) && self.dli_fname) {
    folders.push_back(fs::absolute(self.dli_fname, ignored).parent_path());
  }
  return folders;
}

void* open_library(const fs::path& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

/// A library that the user named: no other one is tried.
void* open_named(const std::string& where, const fs::path& named) {
  std::error_code ignored;
  const auto path = fs::is_directory(named, ignored) ? library_in(named) : named;
  if (!path.empty()) {
    if (void* library = open_library(path)) return library;
  }
  const char* why = path.empty() ? "that folder contains no libonnxruntime.so" : dlerror();
  throw UserError(where + "=" + named.string() + ": cannot be loaded (" + (why ? why : "unknown") +
                  "); must be libonnxruntime.so of ONNX Runtime 1.17 or newer, or its folder");
}

void* find_library(const fs::path& option) {
  if (!option.empty()) return open_named("--onnxruntime", option);
  if (const char* named = std::getenv("ROBOT_RL_ONNXRUNTIME"); named && *named) {
    return open_named("ROBOT_RL_ONNXRUNTIME", named);
  }
  for (const auto& folder : own_folders()) {
    // Next to the program, in a prefix's lib, and where pip installs the package onnxruntime next to this one.
    for (const char* place : {".", "../lib", "../onnxruntime/capi", "../../onnxruntime/capi"}) {
      const auto path = library_in(folder / place);
      if (path.empty()) continue;
      if (void* library = open_library(path)) return library;
    }
  }
  for (const char* name : {"libonnxruntime.so.1", "libonnxruntime.so"}) {
    if (void* library = open_library(name)) return library;
  }
  throw UserError(
      "ONNX Runtime was not found: no libonnxruntime.so next to this program or among the system's "
      "libraries; pip install onnxruntime and name its capi/libonnxruntime.so* with --onnxruntime or "
      "ROBOT_RL_ONNXRUNTIME");
}

const ort::ApiBase* load_base(const fs::path& option) {
  // Newer libraries open a network connection and a database in the home folder for telemetry: not on a robot.
  setenv("ORT_DISABLE_TELEMETRY", "1", 1);
  void* library = find_library(option);  // stays loaded: it keeps state for each thread
  using GetBase = const ort::ApiBase* (*)();
  const auto get_base = reinterpret_cast<GetBase>(dlsym(library, "OrtGetApiBase"));
  if (!get_base) throw UserError("ONNX Runtime: the library has no OrtGetApiBase; is it libonnxruntime.so?");
  return get_base();
}

ort::Api load_api(const ort::ApiBase* base) {
  const auto table = base->get_api(ort::kVersion);
  if (!table) {
    throw UserError(std::string("ONNX Runtime ") + base->version() + " is too old; 1.17 or newer is needed");
  }
  return ort::Api(table);
}

/// Minor version of ONNX Runtime 1 that first knows an opset.
int runtime_of(int opset) {
  constexpr std::pair<int, int> kKnown[] = {{19, 16}, {20, 17}, {21, 18}, {22, 20}};
  for (const auto& [known, minor] : kKnown) {
    if (opset <= known) return minor;
  }
  return 22;
}

/// Refuse a network with a precision for which the library is too old.
void check_version(const Contract& contract, const std::string& version) {
  if (!contract.precision) return;
  int major = 0, minor = 0;
  const int needed = runtime_of(contract.precision->opset);
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 && (major > 1 || minor >= needed)) return;
  refuse_precision(contract, "ONNX Runtime " + version,
                   "is too old for it, with opset " + std::to_string(contract.precision->opset),
                   "1." + std::to_string(needed) + " or newer");
}

class OnnxRuntime final : public Backend {
 public:
  OnnxRuntime(const Contract& contract, std::span<const std::byte> model, const BackendOptions& options);
  ~OnnxRuntime() override;
  bool run(std::span<const float> observation, std::span<const float> state, std::span<float> action,
           std::span<float> joint_target, std::span<float> state_out) noexcept override;
  void rehearse() noexcept override { infer(); }
  std::string identity() const override {
    return std::string("onnxruntime ") + base_->version() + ", CPU, " + contract_->mode() + ", 1 thread";
  }

 private:
  /// A tensor (1, width) and its memory.
  struct Tensor {
    std::string name;
    std::vector<float> data;
    ort::Value* value = nullptr;
  };
  void load(std::span<const std::byte> model);
  void set_precision(ort::SessionOptions* options) const;
  void check(ort::Status* status) const;
  std::vector<FoundNode> declared(bool inputs) const;
  FoundNode describe(ort::TypeInfo* info) const;
  void bind(const std::vector<Node>& nodes, std::vector<Tensor>& tensors);
  bool infer() noexcept;
  void release() noexcept;

  const ort::ApiBase* base_;
  ort::Api api_;
  ort::Env* env_ = nullptr;
  ort::Session* session_ = nullptr;
  ort::MemoryInfo* memory_ = nullptr;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<const char*> input_names_, output_names_;
  std::vector<const ort::Value*> input_values_;
  std::vector<ort::Value*> output_values_;
};

OnnxRuntime::OnnxRuntime(const Contract& contract, std::span<const std::byte> model, const BackendOptions& options)
    : Backend(contract), base_(load_base(options.library)), api_(load_api(base_)) {
  try {
    check_version(contract, base_->version());
    load(model);
    check_nodes(declared(true), network_inputs(contract));
    check_nodes(declared(false), network_outputs(contract));
    bind(network_inputs(contract), inputs_);
    bind(network_outputs(contract), outputs_);
    for (auto& tensor : inputs_) {
      input_names_.push_back(tensor.name.c_str());
      input_values_.push_back(tensor.value);
    }
    for (auto& tensor : outputs_) {
      output_names_.push_back(tensor.name.c_str());
      output_values_.push_back(tensor.value);
    }
    // Once by hand, to get the library's error message.
    check(api_(ort::kRun, session_, nullptr, input_names_.data(), input_values_.data(), input_values_.size(),
               output_names_.data(), output_names_.size(), output_values_.data()));
  } catch (...) {
    release();
    throw;
  }
}

OnnxRuntime::~OnnxRuntime() { release(); }

/// Processors without VNNI would saturate in sums of int8. The library's integer kernels take no fp8, and without them
/// the weights are converted once, at the start.
void OnnxRuntime::set_precision(ort::SessionOptions* options) const {
  const auto mode = contract_->mode();
  const char* entry = mode == "int8"  ? "session.x64quantprecision"
                      : mode == "fp8" ? "session.disable_quant_qdq"
                                      : nullptr;
  if (entry) check(api_(ort::kAddSessionConfigEntry, options, entry, "1"));
}

void OnnxRuntime::load(std::span<const std::byte> model) {
  check(api_(ort::kCreateEnv, ort::kFatal, "robot-rl", &env_));
  check(api_(ort::kDisableTelemetryEvents, env_));
  ort::SessionOptions* options = nullptr;
  check(api_(ort::kCreateSessionOptions, &options));
  try {
    check(api_(ort::kSetSessionLogSeverityLevel, options, ort::kFatal));
    check(api_(ort::kSetIntraOpNumThreads, options, 1));
    check(api_(ort::kSetInterOpNumThreads, options, 1));
    check(api_(ort::kAddSessionConfigEntry, options, "session.intra_op.allow_spinning", "0"));
    check(api_(ort::kAddSessionConfigEntry, options, "session.inter_op.allow_spinning", "0"));
    set_precision(options);
    check(api_(ort::kCreateSessionFromArray, env_, model.data(), model.size(), options, &session_));
  } catch (...) {
    api_(ort::kReleaseSessionOptions, options);
    throw;
  }
  api_(ort::kReleaseSessionOptions, options);
  check(api_(ort::kCreateCpuMemoryInfo, ort::kArenaAllocator, ort::kDefaultMemory, &memory_));
}

void OnnxRuntime::check(ort::Status* status) const {
  if (!status) return;
  std::string line = api_(ort::kGetErrorMessage, status);
  api_(ort::kReleaseStatus, status);
  line.resize(std::min(line.size(), line.find('\n')));
  if (contract_->precision) {
    refuse_precision(*contract_, std::string("ONNX Runtime ") + base_->version() + " on the CPU",
                     "cannot load it (" + line + ")", "a newer one or TensorRT");
  }
  throw ContractError("policy.onnx cannot be loaded (" + line + "); export the bundle again");
}

std::vector<FoundNode> OnnxRuntime::declared(bool inputs) const {
  ort::Allocator* allocator = nullptr;
  check(api_(ort::kGetAllocatorWithDefaultOptions, &allocator));
  std::size_t count = 0;
  check(api_(inputs ? ort::kSessionGetInputCount : ort::kSessionGetOutputCount, session_, &count));
  std::vector<FoundNode> nodes;
  for (std::size_t i = 0; i < count; ++i) {
    ort::TypeInfo* info = nullptr;
    check(api_(inputs ? ort::kSessionGetInputTypeInfo : ort::kSessionGetOutputTypeInfo, session_, i, &info));
    nodes.push_back(describe(info));
    char* name = nullptr;
    check(api_(inputs ? ort::kSessionGetInputName : ort::kSessionGetOutputName, session_, i, allocator, &name));
    nodes.back().name = name;
    check(api_(ort::kAllocatorFree, allocator, name));
  }
  return nodes;
}

FoundNode OnnxRuntime::describe(ort::TypeInfo* info) const {
  const auto release = [this](ort::TypeInfo* held) { api_(ort::kReleaseTypeInfo, held); };
  const std::unique_ptr<ort::TypeInfo, decltype(release)> owner(info, release);
  const ort::TensorInfo* tensor = nullptr;
  check(api_(ort::kCastTypeInfoToTensorInfo, info, &tensor));
  if (!tensor) return {"", "no tensor", {}};
  int type = 0;
  std::size_t dimensions = 0;
  check(api_(ort::kGetTensorElementType, tensor, &type));
  check(api_(ort::kGetDimensionsCount, tensor, &dimensions));
  std::vector<std::int64_t> shape(dimensions);
  check(api_(ort::kGetDimensions, tensor, shape.data(), shape.size()));
  return {"", type == ort::kFloat ? "float" : "type " + std::to_string(type), {shape.begin(), shape.end()}};
}

void OnnxRuntime::bind(const std::vector<Node>& nodes, std::vector<Tensor>& tensors) {
  for (const auto& node : nodes) tensors.push_back({node.name, std::vector<float>(node.width), nullptr});
  for (auto& tensor : tensors) {
    const std::int64_t shape[2] = {1, static_cast<std::int64_t>(tensor.data.size())};
    check(api_(ort::kCreateTensorWithDataAsOrtValue, memory_, tensor.data.data(), tensor.data.size() * sizeof(float),
               shape, 2, ort::kFloat, &tensor.value));
  }
}

bool OnnxRuntime::run(std::span<const float> observation, std::span<const float> state, std::span<float> action,
                      std::span<float> joint_target, std::span<float> state_out) noexcept {
  const std::span<const float> given[] = {observation, state};
  const std::span<float> wanted[] = {action, joint_target, state_out};
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (given[i].size() != inputs_[i].data.size()) return false;
    std::memcpy(inputs_[i].data.data(), given[i].data(), given[i].size_bytes());
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (wanted[i].size() != outputs_[i].data.size()) return false;
  }
  if (!infer()) return false;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    std::memcpy(wanted[i].data(), outputs_[i].data.data(), wanted[i].size_bytes());
  }
  return true;
}

/// From the input buffers to the output buffers; `run` copies the inputs and results.
bool OnnxRuntime::infer() noexcept {
  auto* status = api_(ort::kRun, session_, nullptr, input_names_.data(), input_values_.data(), input_values_.size(),
                      output_names_.data(), output_names_.size(), output_values_.data());
  if (status) api_(ort::kReleaseStatus, status);
  return !status;
}

void OnnxRuntime::release() noexcept {
  for (auto* tensors : {&inputs_, &outputs_}) {
    for (auto& tensor : *tensors) {
      if (tensor.value) api_(ort::kReleaseValue, tensor.value);
    }
  }
  if (memory_) api_(ort::kReleaseMemoryInfo, memory_);
  if (session_) api_(ort::kReleaseSession, session_);
  if (env_) api_(ort::kReleaseEnv, env_);
}

}  // namespace

std::unique_ptr<Backend> make_onnxruntime(const Contract& contract, std::span<const std::byte> model,
                                          const BackendOptions& options) {
  check_precision(contract, options);
  if (!contract.precision && options.precision != "fp32" && options.precision != "auto") {
    throw UserError("--precision=" + options.precision + ": ONNX Runtime on the CPU runs fp32");
  }
  return std::make_unique<OnnxRuntime>(contract, model, options);
}

}  // namespace robot_rl

// TensorRT 10 and 11. The engine is built on the device and kept (engine_cache.h); copies and inference are one CUDA
// graph over pinned memory. Compiled if NvInfer.h is found; CI compiles and runs it against replacements of
// the headers.
#include <NvInfer.h>
#include <NvOnnxParser.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backend.h"
#include "engine_cache.h"
#include "network.h"
#include "sha256.h"

namespace robot_rl {

namespace {

#if NV_TENSORRT_MAJOR < 11
constexpr auto kStronglyTyped = nvinfer1::NetworkDefinitionCreationFlag::kSTRONGLY_TYPED;
#endif
constexpr std::size_t kWorkspaceBytes = std::size_t{256} << 20;

/// Keeps the library's last error for the message of an exception.
class Logger final : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const nvinfer1::AsciiChar* message) noexcept override {
    if (severity > Severity::kERROR) return;
    std::snprintf(last_, sizeof last_, "%s", message);
  }
  std::string last() const { return *last_ ? last_ : "it gave no reason"; }

 private:
  char last_[400] = {};
};

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw UserError(std::string("--backend=tensorrt: ") + what + " failed (" + cudaGetErrorString(error) +
                  "); it needs an NVIDIA GPU with its driver, or take 'onnxruntime'");
}

std::string dotted(int version, int major_unit, int minor_unit) {
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / minor_unit);
}

std::string tensorrt_version() {
  const int version = getInferLibVersion();
  return dotted(version, 10000, 100) + "." + std::to_string(version % 100);
}

/// Page-locked memory of the host and memory of the device for one input or output.
struct Tensor {
  Node node;
  float* host = nullptr;
  float* device = nullptr;
  std::size_t bytes() const { return static_cast<std::size_t>(node.width) * sizeof(float); }
};

class TensorRt final : public Backend {
 public:
  TensorRt(const Contract& contract, std::span<const std::byte> model, const BackendOptions& options);
  ~TensorRt() override { release(); }
  bool run(std::span<const float> observation, std::span<const float> state, std::span<float> action,
           std::span<float> joint_target, std::span<float> state_out) noexcept override;
  void rehearse() noexcept override { infer(); }
  std::string identity() const override;

 private:
  void open_device();
  void check_device(int capability) const;
  std::string precision() const { return half_ ? "fp16" : contract_->mode(); }
  void load(std::span<const std::byte> model, const BackendOptions& options);
  std::vector<std::byte> build(std::span<const std::byte> model);
  void limit_batch(nvinfer1::IBuilder& builder, nvinfer1::INetworkDefinition& network,
                   nvinfer1::IBuilderConfig& config);
  bool open_engine(std::span<const std::byte> plan);
  void check_engine() const;
  void bind();
  bool enqueue() noexcept;
  bool infer() noexcept;
  void capture();
  void release() noexcept;

  Logger logger_;
  bool half_;
  std::string gpu_, cuda_, kept_;
  std::unique_ptr<nvinfer1::IRuntime> runtime_;
  std::unique_ptr<nvinfer1::ICudaEngine> engine_;
  std::unique_ptr<nvinfer1::IExecutionContext> context_;
  std::vector<Tensor> inputs_, outputs_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

TensorRt::TensorRt(const Contract& contract, std::span<const std::byte> model, const BackendOptions& options)
    : Backend(contract), half_(options.precision == "fp16") {
  try {
    open_device();
    load(model, options);
    check_engine();
    bind();
    capture();
  } catch (...) {
    release();
    throw;
  }
}

void TensorRt::open_device() {
  // A thread that waits for the GPU sleeps: one that spins at SCHED_FIFO would be throttled. Fails only if
  // other code of this process opened the device before.
  if (cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess) static_cast<void>(cudaGetLastError());
  check(cudaSetDevice(0), "opening the GPU");
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "asking for the GPU's name");
  gpu_ = std::string(device.name) + " sm" + std::to_string(device.major) + std::to_string(device.minor);
  check_device(10 * device.major + device.minor);
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "asking for CUDA's version");
  cuda_ = dotted(version, 1000, 10);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

/// Refuse a network with a precision that the GPU has not.
void TensorRt::check_device(int capability) const {
  const auto mode = contract_->mode();
  const int needed = mode == "fp8" ? 89 : mode == "bf16" ? 80 : 0;
  if (capability >= needed) return;
  refuse_precision(*contract_, "TensorRT on " + gpu_, "has none, which needs sm" + std::to_string(needed),
                   "--backend onnxruntime");
}

void TensorRt::load(std::span<const std::byte> model, const BackendOptions& options) {
  runtime_.reset(nvinfer1::createInferRuntime(logger_));
  if (!runtime_) throw UserError("--backend=tensorrt: TensorRT cannot be started (" + logger_.last() + ")");
  const auto folder = engine_folder(options.cache);
  const EngineKey key{sha256(model), tensorrt_version(), cuda_, gpu_, precision()};
  std::string why;
  if (open_engine(load_engine(folder, key, why))) {
    kept_ = "engine from the cache";
    return;
  }
  const auto name = key.file_name();
  std::fprintf(stderr, "robot-rl-infer: building the TensorRT engine for this device, once (%s)\n", name.c_str());
  if (!why.empty()) std::fprintf(stderr, "robot-rl-infer: %s\n", why.c_str());
  const auto plan = build(model);
  if (!open_engine(plan)) {
    throw ContractError("policy.onnx: its TensorRT engine cannot be opened (" + logger_.last() + ")");
  }
  kept_ = "engine built now";
  if (!store_engine(folder, key, plan, why)) {
    kept_ += ", not kept";
    std::fprintf(stderr, "robot-rl-infer: %s\n", why.c_str());
  }
}

std::vector<std::byte> TensorRt::build(std::span<const std::byte> model) {
  const std::unique_ptr<nvinfer1::IBuilder> builder(nvinfer1::createInferBuilder(logger_));
  if (!builder) throw UserError("--backend=tensorrt: TensorRT has no builder on this machine (" + logger_.last() + ")");
  nvinfer1::NetworkDefinitionCreationFlags flags = 0;
#if NV_TENSORRT_MAJOR < 11
  // Types as the network states them; TensorRT 11 has no others.
  if (contract_->precision) flags = 1U << static_cast<std::uint32_t>(kStronglyTyped);
#endif
  const std::unique_ptr<nvinfer1::INetworkDefinition> network(builder->createNetworkV2(flags));
  const std::unique_ptr<nvinfer1::IBuilderConfig> config(builder->createBuilderConfig());
  if (!network || !config) {
    throw UserError("--backend=tensorrt: TensorRT cannot build engines on this machine (" + logger_.last() + ")");
  }
  const std::unique_ptr<nvonnxparser::IParser> parser(nvonnxparser::createParser(*network, logger_));
  if (!parser) throw UserError("--backend=tensorrt: TensorRT has no parser on this machine (" + logger_.last() + ")");
  if (!parser->parse(model.data(), model.size())) {
    const std::string why = parser->getNbErrors() ? parser->getError(0)->desc() : logger_.last();
    if (contract_->precision) {
      refuse_precision(*contract_, "TensorRT " + tensorrt_version(), "cannot read it (" + why + ")",
                       "--backend onnxruntime");
    }
    throw ContractError("policy.onnx cannot be read by TensorRT (" + why + "); use --backend onnxruntime");
  }
  config->setMemoryPoolLimit(nvinfer1::MemoryPoolType::kWORKSPACE, kWorkspaceBytes);
  config->clearFlag(nvinfer1::BuilderFlag::kTF32);  // on by default, but not fp32: it rounds to 10 bits
#if NV_TENSORRT_MAJOR < 11
  if (half_) config->setFlag(nvinfer1::BuilderFlag::kFP16);
#endif
  limit_batch(*builder, *network, *config);
  const std::unique_ptr<nvinfer1::IHostMemory> plan(builder->buildSerializedNetwork(*network, *config));
  if (!plan) throw ContractError("policy.onnx: TensorRT cannot build an engine of it (" + logger_.last() + ")");
  const auto* bytes = static_cast<const std::byte*>(plan->data());
  return {bytes, bytes + plan->size()};
}

/// The network takes any number of robots; this engine runs one.
void TensorRt::limit_batch(nvinfer1::IBuilder& builder, nvinfer1::INetworkDefinition& network,
                           nvinfer1::IBuilderConfig& config) {
  auto* profile = builder.createOptimizationProfile();  // the builder's own
  bool right = profile != nullptr;
  for (int i = 0; right && i < network.getNbInputs(); ++i) {
    const auto* input = network.getInput(i);
    auto shape = input->getDimensions();
    if (shape.nbDims != 2) {
      throw ContractError(std::string("policy.onnx: '") + input->getName() + "' is not (N, width)");
    }
    shape.d[0] = 1;
    for (const auto which :
         {nvinfer1::OptProfileSelector::kMIN, nvinfer1::OptProfileSelector::kOPT, nvinfer1::OptProfileSelector::kMAX}) {
      right = right && profile->setDimensions(input->getName(), which, shape);
    }
  }
  if (!right || config.addOptimizationProfile(profile) < 0) {
    throw ContractError("policy.onnx: TensorRT refuses its shapes (" + logger_.last() + ")");
  }
}

bool TensorRt::open_engine(std::span<const std::byte> plan) {
  if (plan.empty()) return false;
  engine_.reset(runtime_->deserializeCudaEngine(plan.data(), plan.size()));
  if (engine_) context_.reset(engine_->createExecutionContext());
  return context_ != nullptr;
}

void TensorRt::check_engine() const {
  for (const bool input : {true, false}) {
    const auto wanted = input ? network_inputs(*contract_) : network_outputs(*contract_);
    const auto place = [&wanted](const std::string& name) {
      return std::find_if(wanted.begin(), wanted.end(), [&name](const Node& node) { return node.name == name; });
    };
    std::vector<FoundNode> found;
    for (int i = 0; i < engine_->getNbIOTensors(); ++i) {
      const char* name = engine_->getIOTensorName(i);
      if ((engine_->getTensorIOMode(name) == nvinfer1::TensorIOMode::kINPUT) != input) continue;
      const auto shape = engine_->getTensorShape(name);
      const bool single = engine_->getTensorDataType(name) == nvinfer1::DataType::kFLOAT;
      found.push_back({name, single ? "float" : "no float", {shape.d, shape.d + std::max(shape.nbDims, 0)}});
    }
    // An engine has no order of its own.
    std::stable_sort(found.begin(), found.end(), [&place](const FoundNode& one, const FoundNode& other) {
      return place(one.name) < place(other.name);
    });
    check_nodes(found, wanted);
  }
}

void TensorRt::bind() {
  for (const auto& node : network_inputs(*contract_)) inputs_.push_back({node});
  for (const auto& node : network_outputs(*contract_)) outputs_.push_back({node});
  for (auto* tensors : {&inputs_, &outputs_}) {
    for (auto& tensor : *tensors) {
      void* memory = nullptr;
      check(cudaHostAlloc(&memory, tensor.bytes(), cudaHostAllocDefault), "locking memory");
      tensor.host = static_cast<float*>(memory);
      std::memset(tensor.host, 0, tensor.bytes());
      check(cudaMalloc(&memory, tensor.bytes()), "taking the GPU's memory");
      tensor.device = static_cast<float*>(memory);
      bool right = context_->setTensorAddress(tensor.node.name.c_str(), tensor.device);
      if (tensors == &inputs_) {
        nvinfer1::Dims shape{};
        shape.nbDims = 2;
        shape.d[0] = 1;
        shape.d[1] = tensor.node.width;
        right = right && context_->setInputShape(tensor.node.name.c_str(), shape);
      }
      if (!right) {
        throw ContractError("policy.onnx: TensorRT refuses '" + tensor.node.name + "' (" + logger_.last() + ")");
      }
    }
  }
}

bool TensorRt::enqueue() noexcept {
  for (const auto& tensor : inputs_) {
    if (cudaMemcpyAsync(tensor.device, tensor.host, tensor.bytes(), cudaMemcpyHostToDevice, stream_) != cudaSuccess) {
      return false;
    }
  }
  if (!context_->enqueueV3(stream_)) return false;
  for (const auto& tensor : outputs_) {
    if (cudaMemcpyAsync(tensor.host, tensor.device, tensor.bytes(), cudaMemcpyDeviceToHost, stream_) != cudaSuccess) {
      return false;
    }
  }
  return true;
}

/// Record copies and inference once; without the graph every run enqueues them again, which is correct but slower.
void TensorRt::capture() {
  if (!enqueue()) throw ContractError("policy.onnx cannot be run by TensorRT (" + logger_.last() + ")");
  // The first run of a shape makes preparations that are not allowed during a capture.
  check(cudaStreamSynchronize(stream_), "the first inference");
  cudaGraph_t graph = nullptr;
  if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
    const bool queued = enqueue();
    const bool ended = cudaStreamEndCapture(stream_, &graph) == cudaSuccess;
    if (!queued || !ended || !graph || cudaGraphInstantiate(&graph_, graph, 0) != cudaSuccess) graph_ = nullptr;
  }
  if (graph) cudaGraphDestroy(graph);
  if (!graph_) static_cast<void>(cudaGetLastError());
}

bool TensorRt::run(std::span<const float> observation, std::span<const float> state, std::span<float> action,
                   std::span<float> joint_target, std::span<float> state_out) noexcept {
  const std::span<const float> given[] = {observation, state};
  const std::span<float> wanted[] = {action, joint_target, state_out};
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (wanted[i].size_bytes() != outputs_[i].bytes()) return false;
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (given[i].size_bytes() != inputs_[i].bytes()) return false;
    std::memcpy(inputs_[i].host, given[i].data(), inputs_[i].bytes());
  }
  if (!infer()) return false;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    std::memcpy(wanted[i].data(), outputs_[i].host, outputs_[i].bytes());
  }
  return true;
}

/// From the input buffers to the output buffers.
bool TensorRt::infer() noexcept {
  const bool sent = graph_ ? cudaGraphLaunch(graph_, stream_) == cudaSuccess : enqueue();
  // Wait in any case: nothing may still write to the buffers when the next run begins.
  return cudaStreamSynchronize(stream_) == cudaSuccess && sent;
}

std::string TensorRt::identity() const {
  return "tensorrt " + tensorrt_version() + ", CUDA " + cuda_ + ", " + gpu_ + ", " + precision() + ", " +
         (graph_ ? "CUDA graph" : "no CUDA graph") + ", " + kept_;
}

void TensorRt::release() noexcept {
  if (stream_) cudaStreamSynchronize(stream_);
  if (graph_) cudaGraphExecDestroy(graph_);
  context_.reset();
  for (auto* tensors : {&inputs_, &outputs_}) {
    for (auto& tensor : *tensors) {
      if (tensor.host) cudaFreeHost(tensor.host);
      if (tensor.device) cudaFree(tensor.device);
    }
  }
  if (stream_) cudaStreamDestroy(stream_);
}

}  // namespace

bool has_tensorrt() { return true; }

std::unique_ptr<Backend> make_tensorrt(const Contract& contract, std::span<const std::byte> model,
                                       const BackendOptions& options) {
  check_precision(contract, options);
#if NV_TENSORRT_MAJOR >= 11
  if (options.precision == "fp16") {
    throw UserError("--precision=fp16: TensorRT 11 takes the precision from the network, and that of a bundle is fp32");
  }
#endif
  return std::make_unique<TensorRt>(contract, model, options);
}

}  // namespace robot_rl

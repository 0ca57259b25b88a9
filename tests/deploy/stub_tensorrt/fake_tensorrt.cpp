// TensorRT played by ONNX Runtime on the CPU. A "plan" is the ONNX file with the flags that it was built with; results
// are rounded as those flags allow: to fp16's 11 bits, or to TF32's 11 where nobody switched that off.
#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "NvOnnxParser.h"
#include "fake.h"
#include "ort_api.h"

namespace nvinfer1 {

namespace {

using namespace robot_rl;

struct Info {
  std::string name;
  bool input = true;
  std::vector<std::int64_t> shape;
};

/// An ONNX file in ONNX Runtime.
class Session {
 public:
  static const ort::Api& api() {
    static const ort::Api all = [] {
      void* library = dlopen(std::getenv("ROBOT_RL_ONNXRUNTIME"), RTLD_NOW | RTLD_LOCAL);
      using GetBase = const ort::ApiBase* (*)();
      return ort::Api(reinterpret_cast<GetBase>(dlsym(library, "OrtGetApiBase"))()->get_api(ort::kVersion));
    }();
    return all;
  }
  explicit Session(const std::string& model) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 1);
    ort::SessionOptions* options = nullptr;
    api()(ort::kCreateEnv, ort::kFatal, "fake", &env_);
    api()(ort::kCreateSessionOptions, &options);
    api()(ort::kSetIntraOpNumThreads, options, 1);
    api()(ort::kAddSessionConfigEntry, options, "session.disable_quant_qdq", "1");  // it has no kernels of fp8
    api()(ort::kCreateSessionFromArray, env_, model.data(), model.size(), options, &session_);
    api()(ort::kReleaseSessionOptions, options);
    api()(ort::kCreateCpuMemoryInfo, ort::kArenaAllocator, ort::kDefaultMemory, &memory_);
    if (!session_) return;
    for (const bool input : {true, false}) list(input);
  }
  bool good() const { return session_ != nullptr; }
  const std::vector<Info>& tensors() const { return tensors_; }
  bool run(const std::map<std::string, float*>& addresses) const {
    std::vector<const char*> names[2];
    std::vector<ort::Value*> values[2];
    for (const auto& tensor : tensors_) {
      const std::int64_t shape[2] = {1, tensor.shape[1]};
      ort::Value* value = nullptr;
      api()(ort::kCreateTensorWithDataAsOrtValue, memory_, addresses.at(tensor.name),
            static_cast<std::size_t>(shape[1]) * sizeof(float), shape, 2, ort::kFloat, &value);
      names[!tensor.input].push_back(tensor.name.c_str());
      values[!tensor.input].push_back(value);
    }
    return !api()(ort::kRun, session_, nullptr, names[0].data(), values[0].data(), values[0].size(), names[1].data(),
                  names[1].size(), values[1].data());
  }

 private:
  void list(bool input) {
    ort::Allocator* allocator = nullptr;
    std::size_t count = 0;
    api()(ort::kGetAllocatorWithDefaultOptions, &allocator);
    api()(input ? ort::kSessionGetInputCount : ort::kSessionGetOutputCount, session_, &count);
    for (std::size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      ort::TypeInfo* type = nullptr;
      const ort::TensorInfo* tensor = nullptr;
      api()(input ? ort::kSessionGetInputName : ort::kSessionGetOutputName, session_, i, allocator, &name);
      api()(input ? ort::kSessionGetInputTypeInfo : ort::kSessionGetOutputTypeInfo, session_, i, &type);
      api()(ort::kCastTypeInfoToTensorInfo, type, &tensor);
      Info info{name, input, std::vector<std::int64_t>(2)};
      api()(ort::kGetDimensions, tensor, info.shape.data(), 2);
      tensors_.push_back(info);
    }
  }
  ort::Env* env_ = nullptr;
  ort::Session* session_ = nullptr;
  ort::MemoryInfo* memory_ = nullptr;
  std::vector<Info> tensors_;
};

Dims dims_of(const std::vector<std::int64_t>& shape) {
  Dims dims{};
  dims.nbDims = static_cast<std::int32_t>(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) dims.d[i] = shape[i];
  return dims;
}

/// Rounds to a mantissa of `bits`.
float rounded(float value, int bits) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

struct Tensor final : ITensor {
  Info info;
  const char* getName() const noexcept override { return info.name.c_str(); }
  Dims getDimensions() const noexcept override { return dims_of(info.shape); }
};

struct Network final : INetworkDefinition {
  std::string model;
  bool typed = false;
  std::vector<std::unique_ptr<Tensor>> inputs;
  std::int32_t getNbInputs() const noexcept override { return static_cast<std::int32_t>(inputs.size()); }
  ITensor* getInput(std::int32_t index) const noexcept override { return inputs[index].get(); }
  bool rounds() const {
    return model.find("QuantizeLinear") != std::string::npos || model.find("Cast") != std::string::npos;
  }
};

struct Profile final : IOptimizationProfile {
  std::map<std::string, int> given;
  bool setDimensions(const char* input, OptProfileSelector select, const Dims& dims) noexcept override {
    if (dims.nbDims != 2 || dims.d[0] != 1 || dims.d[1] < 1) return false;
    given[input] |= 1 << static_cast<int>(select);
    return true;
  }
};

struct Config final : IBuilderConfig {
  bool half = false, tf32 = true;
  const Profile* profile = nullptr;
  void setFlag(BuilderFlag flag) noexcept override { set(flag, true); }
  void clearFlag(BuilderFlag flag) noexcept override { set(flag, false); }
  void set(BuilderFlag flag, bool on) {
    if (flag == BuilderFlag::kTF32) tf32 = on;
#if NV_TENSORRT_MAJOR < 11
    if (flag == BuilderFlag::kFP16) half = on;
#endif
  }
  void setMemoryPoolLimit(MemoryPoolType, std::size_t) noexcept override {}
  std::int32_t addOptimizationProfile(const IOptimizationProfile* added) noexcept override {
    profile = static_cast<const Profile*>(added);
    return 0;
  }
};

struct Plan final : IHostMemory {
  std::string bytes;
  void* data() const noexcept override { return const_cast<char*>(bytes.data()); }
  std::size_t size() const noexcept override { return bytes.size(); }
};

struct Builder final : IBuilder {
  std::vector<std::unique_ptr<Profile>> profiles;
  INetworkDefinition* createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept override {
    auto* network = new Network();
    network->typed = NV_TENSORRT_MAJOR >= 11 || flags == 2;
    return network;
  }
  IBuilderConfig* createBuilderConfig() noexcept override { return new Config(); }
  IOptimizationProfile* createOptimizationProfile() noexcept override {
    profiles.push_back(std::make_unique<Profile>());
    return profiles.back().get();
  }
  IHostMemory* buildSerializedNetwork(INetworkDefinition& network, IBuilderConfig& config) noexcept override {
    const auto& right = static_cast<Config&>(config);
    const auto& source = static_cast<Network&>(network);
    if (!right.profile) return nullptr;  // the batch is free, so a profile is needed
    for (const auto& input : source.inputs) {
      const auto found = right.profile->given.find(input->info.name);
      if (found == right.profile->given.end() || found->second != 7) return nullptr;
    }
    if (!source.typed && source.rounds()) return nullptr;  // a network with types of its own
    ++fake::counters().builds;
    const bool half = right.half && !fake::misbehaves("silent_fp32");
    auto* plan = new Plan();
    plan->bytes = std::string("PLAN") + (half ? "h" : "f") + (right.tf32 ? "t" : "-") + source.model;
    return plan;
  }
};

struct Engine;

struct Context final : IExecutionContext {
  Engine* engine;
  std::map<std::string, float*> addresses;
  explicit Context(Engine* engine) : engine(engine) {}
  bool setInputShape(const char*, const Dims& dims) noexcept override { return dims.nbDims == 2 && dims.d[0] == 1; }
  bool setTensorAddress(const char* tensor, void* data) noexcept override {
    addresses[tensor] = static_cast<float*>(data);
    return fake::is_device(data);
  }
  bool enqueueV3(cudaStream_t stream) noexcept override;
  bool work();
};

struct Engine final : ICudaEngine {
  Session session;
  bool half, tf32;
  Engine(const std::string& plan) : session(plan.substr(6)), half(plan[4] == 'h'), tf32(plan[5] == 't') {}
  const Info& at(const char* name) const {
    for (const auto& info : session.tensors()) {
      if (info.name == name) return info;
    }
    std::abort();
  }
  std::int32_t getNbIOTensors() const noexcept override { return static_cast<std::int32_t>(session.tensors().size()); }
  const char* getIOTensorName(std::int32_t index) const noexcept override {  // in no order that a caller may rely on
    return session.tensors()[session.tensors().size() - 1 - index].name.c_str();
  }
  TensorIOMode getTensorIOMode(const char* name) const noexcept override {
    return at(name).input ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT;
  }
  Dims getTensorShape(const char* name) const noexcept override { return dims_of(at(name).shape); }
  DataType getTensorDataType(const char*) const noexcept override { return DataType::kFLOAT; }
  IExecutionContext* createExecutionContext(ExecutionContextAllocationStrategy) noexcept override {
    return new Context(this);
  }
};

bool Context::enqueueV3(cudaStream_t stream) noexcept {
  ++fake::counters().enqueues;
  return addresses.size() == engine->session.tensors().size() &&
         fake::submit(stream, [this] { return work(); }) == cudaSuccess;
}

bool Context::work() {
  if (fake::misbehaves("fails") || !engine->session.run(addresses)) return false;
  for (const auto& info : engine->session.tensors()) {
    for (std::int64_t i = 0; !info.input && i < info.shape[1]; ++i) {
      float& value = addresses[info.name][i];
      if (engine->half || engine->tf32) value = rounded(value, 11);
      if (fake::misbehaves("wrong")) value += 0.05F;
      if (engine->half && fake::misbehaves("bad_fp16")) value += 0.05F;
    }
  }
  return true;
}

struct Runtime final : IRuntime {
  ICudaEngine* deserializeCudaEngine(const void* blob, std::size_t size) noexcept override {
    const std::string plan(static_cast<const char*>(blob), size);
    if (!plan.starts_with("PLAN")) return nullptr;
    ++fake::counters().deserialized;
    auto engine = std::make_unique<Engine>(plan);
    return engine->session.good() ? engine.release() : nullptr;
  }
};

}  // namespace

IBuilder* createInferBuilder(ILogger&) noexcept { return new Builder(); }
IRuntime* createInferRuntime(ILogger&) noexcept { return new Runtime(); }

}  // namespace nvinfer1

namespace nvonnxparser {

namespace {

struct ParserError final : IParserError {
  const char* desc() const noexcept override { return "the fake parser found an operator that it does not know"; }
};

struct Parser final : IParser {
  nvinfer1::Network* network;
  ParserError error;
  explicit Parser(nvinfer1::Network* network) : network(network) {}
  bool parse(const void* model, std::size_t bytes, const char*) noexcept override {
    network->model.assign(static_cast<const char*>(model), bytes);
    const nvinfer1::Session session(network->model);
    if (!session.good() || fake::misbehaves("no_parse")) return false;
    for (const auto& info : session.tensors()) {
      if (!info.input) continue;
      network->inputs.push_back(std::make_unique<nvinfer1::Tensor>());
      network->inputs.back()->info = info;
    }
    return true;
  }
  int getNbErrors() const noexcept override { return 1; }
  const IParserError* getError(int) const noexcept override { return &error; }
};

}  // namespace

IParser* createParser(nvinfer1::INetworkDefinition& network, nvinfer1::ILogger&) noexcept {
  return new Parser(&static_cast<nvinfer1::Network&>(network));
}

}  // namespace nvonnxparser

extern "C" std::int32_t getInferLibVersion() noexcept { return NV_TENSORRT_MAJOR * 10000 + 300; }

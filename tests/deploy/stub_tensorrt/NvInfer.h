// A stand-in for TensorRT's header: the few classes and calls that the robot binary uses, declared as TensorRT 10 and
// 11 document them. -DSTUB_TENSORRT=11 takes away what 11 removed. fake_tensorrt.cpp carries them out on the CPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#ifndef STUB_TENSORRT
#define STUB_TENSORRT 10
#endif
#define NV_TENSORRT_MAJOR STUB_TENSORRT
#define NV_TENSORRT_MINOR 3
#define NV_TENSORRT_PATCH 0

namespace nvinfer1 {

using AsciiChar = char;

enum class DataType : std::int32_t { kFLOAT = 0, kHALF = 1, kINT8 = 2, kINT32 = 3 };
enum class TensorIOMode : std::int32_t { kNONE = 0, kINPUT = 1, kOUTPUT = 2 };
enum class OptProfileSelector : std::int32_t { kMIN = 0, kOPT = 1, kMAX = 2 };
enum class MemoryPoolType : std::int32_t { kWORKSPACE = 0 };
enum class ExecutionContextAllocationStrategy : std::int32_t { kSTATIC = 0 };
enum class BuilderFlag : std::int32_t {
#if NV_TENSORRT_MAJOR < 11
  kFP16 = 0,
#endif
  kTF32 = 6
};
using NetworkDefinitionCreationFlags = std::uint32_t;
#if NV_TENSORRT_MAJOR < 11
enum class NetworkDefinitionCreationFlag : std::int32_t { kEXPLICIT_BATCH = 0, kSTRONGLY_TYPED = 1 };
#endif

class Dims64 {
 public:
  static constexpr std::int32_t MAX_DIMS = 8;
  std::int32_t nbDims;
  std::int64_t d[MAX_DIMS];
};
using Dims = Dims64;

class ILogger {
 public:
  enum class Severity : std::int32_t { kINTERNAL_ERROR = 0, kERROR = 1, kWARNING = 2, kINFO = 3, kVERBOSE = 4 };
  virtual void log(Severity severity, const AsciiChar* message) noexcept = 0;
  ILogger() = default;
  virtual ~ILogger() = default;
};

class IHostMemory {
 public:
  virtual ~IHostMemory() noexcept = default;
  virtual void* data() const noexcept = 0;
  virtual std::size_t size() const noexcept = 0;
};

class ITensor {
 public:
  virtual ~ITensor() noexcept = default;
  virtual const char* getName() const noexcept = 0;
  virtual Dims getDimensions() const noexcept = 0;
};

class INetworkDefinition {
 public:
  virtual ~INetworkDefinition() noexcept = default;
  virtual std::int32_t getNbInputs() const noexcept = 0;
  virtual ITensor* getInput(std::int32_t index) const noexcept = 0;
};

class IOptimizationProfile {
 public:
  virtual bool setDimensions(const char* input, OptProfileSelector select, const Dims& dims) noexcept = 0;

 protected:
  virtual ~IOptimizationProfile() noexcept = default;
};

class IBuilderConfig {
 public:
  virtual ~IBuilderConfig() noexcept = default;
  virtual void setFlag(BuilderFlag flag) noexcept = 0;
  virtual void clearFlag(BuilderFlag flag) noexcept = 0;
  virtual void setMemoryPoolLimit(MemoryPoolType pool, std::size_t bytes) noexcept = 0;
  virtual std::int32_t addOptimizationProfile(const IOptimizationProfile* profile) noexcept = 0;
};

class IBuilder {
 public:
  virtual ~IBuilder() noexcept = default;
  virtual INetworkDefinition* createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept = 0;
  virtual IBuilderConfig* createBuilderConfig() noexcept = 0;
  virtual IOptimizationProfile* createOptimizationProfile() noexcept = 0;
  virtual IHostMemory* buildSerializedNetwork(INetworkDefinition& network, IBuilderConfig& config) noexcept = 0;
};

class IExecutionContext {
 public:
  virtual ~IExecutionContext() noexcept = default;
  virtual bool setInputShape(const char* tensor, const Dims& dims) noexcept = 0;
  virtual bool setTensorAddress(const char* tensor, void* data) noexcept = 0;
  virtual bool enqueueV3(cudaStream_t stream) noexcept = 0;
};

class ICudaEngine {
 public:
  virtual ~ICudaEngine() noexcept = default;
  virtual std::int32_t getNbIOTensors() const noexcept = 0;
  virtual const char* getIOTensorName(std::int32_t index) const noexcept = 0;
  virtual TensorIOMode getTensorIOMode(const char* tensor) const noexcept = 0;
  virtual Dims getTensorShape(const char* tensor) const noexcept = 0;
  virtual DataType getTensorDataType(const char* tensor) const noexcept = 0;
  virtual IExecutionContext* createExecutionContext(
      ExecutionContextAllocationStrategy strategy = ExecutionContextAllocationStrategy::kSTATIC) noexcept = 0;
};

class IRuntime {
 public:
  virtual ~IRuntime() noexcept = default;
  virtual ICudaEngine* deserializeCudaEngine(const void* blob, std::size_t size) noexcept = 0;
};

IBuilder* createInferBuilder(ILogger& logger) noexcept;
IRuntime* createInferRuntime(ILogger& logger) noexcept;

}  // namespace nvinfer1

extern "C" std::int32_t getInferLibVersion() noexcept;

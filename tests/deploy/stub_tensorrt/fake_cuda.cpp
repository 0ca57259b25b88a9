#include <cstdlib>
#include <cstring>
#include <map>

#include "fake.h"

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};

namespace fake {

Counters& counters() {
  static Counters all;
  return all;
}

namespace {

struct Memory {
  std::map<const char*, std::size_t> device, pinned;
};

Memory& memory() {
  static Memory all;
  return all;
}

bool holds(const std::map<const char*, std::size_t>& blocks, const void* pointer) {
  const auto* byte = static_cast<const char*>(pointer);
  auto after = blocks.upper_bound(byte);
  return after != blocks.begin() && (--after, byte < after->first + after->second);
}

cudaError_t take(std::map<const char*, std::size_t>& blocks, void** pointer, std::size_t bytes) {
  *pointer = std::malloc(bytes);
  std::memset(*pointer, 0x7f, bytes);  // whoever reads before anything was written sees huge numbers
  blocks[static_cast<char*>(*pointer)] = bytes;
  ++counters().live;
  return cudaSuccess;
}

cudaError_t give(std::map<const char*, std::size_t>& blocks, void* pointer) {
  if (!blocks.erase(static_cast<char*>(pointer))) return cudaErrorInvalidValue;
  std::free(pointer);
  --counters().live;
  return cudaSuccess;
}

}  // namespace

bool is_device(const void* pointer) { return holds(memory().device, pointer); }
bool is_pinned(const void* pointer) { return holds(memory().pinned, pointer); }

bool misbehaves(const std::string& how) {
  const char* all = std::getenv("FAKE_TRT");
  return all && ("," + std::string(all) + ",").find("," + how + ",") != std::string::npos;
}

cudaError_t submit(cudaStream_t stream, Work work) {
  if (!stream) return cudaErrorInvalidValue;
  (stream->capturing ? stream->captured : stream->queued).push_back(std::move(work));
  return cudaSuccess;
}

}  // namespace fake

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an error of the fake";
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  fake::counters().blocking_sync = flags & cudaDeviceScheduleBlockingSync;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device || fake::misbehaves("no_gpu") ? cudaErrorNoDevice : cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, std::getenv("FAKE_GPU") ? std::getenv("FAKE_GPU") : "Fake Thor");
  const char* capability = std::getenv("FAKE_SM");
  const int number = capability ? std::atoi(capability) : 110;
  properties->major = number / 10;
  properties->minor = number % 10;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) { return fake::take(fake::memory().device, pointer, bytes); }
cudaError_t cudaFree(void* pointer) { return fake::give(fake::memory().device, pointer); }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
  return fake::take(fake::memory().pinned, pointer, bytes);
}
cudaError_t cudaFreeHost(void* pointer) { return fake::give(fake::memory().pinned, pointer); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  const bool up = kind == cudaMemcpyHostToDevice;
  const bool right = up ? fake::is_device(to) && fake::is_pinned(from) : fake::is_pinned(to) && fake::is_device(from);
  if (!right) return cudaErrorInvalidValue;  // pageable memory would make the copy wait
  return fake::submit(stream, [=] {
    std::memcpy(to, from, bytes);
    return true;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = new CUstream_st();
  ++fake::counters().live;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  --fake::counters().live;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capturing) return cudaErrorStreamCaptureUnsupported;
  ++fake::counters().synchronized;
  bool right = true;
  for (const auto& work : stream->queued) right = work() && right;
  stream->queued.clear();
  return right ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode) {
  if (!stream->queued.empty() || fake::misbehaves("no_capture")) return cudaErrorStreamCaptureUnsupported;
  stream->capturing = true;
  stream->captured.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->capturing) return cudaErrorInvalidValue;
  stream->capturing = false;
  *graph = new CUgraph_st{stream->captured};
  ++fake::counters().captures;
  ++fake::counters().live;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->work};
  ++fake::counters().live;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  --fake::counters().live;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ++fake::counters().launches;
  for (const auto& work : executable->work) fake::submit(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  --fake::counters().live;
  return cudaSuccess;
}

}  // extern "C"

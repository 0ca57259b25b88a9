// The CPU that plays GPU and TensorRT for tests: what a stream has to do is done when it is waited for, what is
// captured is done when the graph is launched, and the rules that real hardware has for memory and capture are checked.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "NvInfer.h"

using Work = std::function<bool()>;

struct CUstream_st {
  bool capturing = false;
  std::vector<Work> captured, queued;
};

namespace fake {

/// What happened, for the tests.
struct Counters {
  int builds = 0, deserialized = 0, captures = 0, launches = 0, enqueues = 0, synchronized = 0, live = 0;
  bool blocking_sync = false;
};
Counters& counters();

/// Put work into a stream, or into the graph that is being captured.
cudaError_t submit(cudaStream_t stream, Work work);

/// Whether this is memory that cudaMalloc or cudaHostAlloc gave.
bool is_device(const void* pointer);
bool is_pinned(const void* pointer);

/// Whether a test requested a misbehaviour: FAKE_TRT lists some, separated by commas.
bool misbehaves(const std::string& how);

}  // namespace fake

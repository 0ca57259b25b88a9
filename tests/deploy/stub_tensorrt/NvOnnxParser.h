// A replacement of the header of TensorRT's ONNX parser; see NvInfer.h in this folder.
#pragma once

#include "NvInfer.h"

namespace nvonnxparser {

class IParserError {
 public:
  virtual const char* desc() const noexcept = 0;

 protected:
  virtual ~IParserError() = default;
};

class IParser {
 public:
  virtual ~IParser() noexcept = default;
  virtual bool parse(const void* model, std::size_t bytes, const char* path = nullptr) noexcept = 0;
  virtual int getNbErrors() const noexcept = 0;
  virtual const IParserError* getError(int index) const noexcept = 0;
};

IParser* createParser(nvinfer1::INetworkDefinition& network, nvinfer1::ILogger& logger) noexcept;

}  // namespace nvonnxparser

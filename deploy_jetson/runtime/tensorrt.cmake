# The TensorRT backend, if it is found; else unavailable.cpp reports that it is missing. Sets the target robot_rl_tensorrt.
set(ROBOT_RL_TENSORRT AUTO CACHE STRING "TensorRT: AUTO, ON or OFF")
set(ROBOT_RL_TENSORRT_INCLUDE "" CACHE PATH "folder of NvInfer.h, where it is in no usual place")
# Adds the programs trt_probe_10 and trt_probe_11, which the tests run.
set(ROBOT_RL_TENSORRT_STANDIN "" CACHE PATH "folder of the stand-in headers")

set(tensorrt_found FALSE)
if(NOT ROBOT_RL_TENSORRT STREQUAL "OFF")
  find_path(NVINFER_INCLUDE NvInfer.h
    HINTS ${ROBOT_RL_TENSORRT_INCLUDE} /usr/include/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
  find_library(NVINFER nvinfer PATH_SUFFIXES ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
  find_library(NVONNXPARSER nvonnxparser PATH_SUFFIXES ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
  find_package(CUDAToolkit QUIET)
  if(NVINFER_INCLUDE AND NVINFER AND NVONNXPARSER AND CUDAToolkit_FOUND)
    set(tensorrt_found TRUE)
  elseif(ROBOT_RL_TENSORRT STREQUAL "ON")
    message(FATAL_ERROR "ROBOT_RL_TENSORRT is ON, but not all was found: NvInfer.h '${NVINFER_INCLUDE}', "
      "libnvinfer '${NVINFER}', libnvonnxparser '${NVONNXPARSER}', CUDA toolkit '${CUDAToolkit_VERSION}'; install "
      "libnvinfer-dev, libnvonnxparsers-dev and the CUDA toolkit, name the header's folder with "
      "-DROBOT_RL_TENSORRT_INCLUDE=DIR, or set it to OFF")
  endif()
endif()

if(tensorrt_found)
  message(STATUS "TensorRT: ${NVINFER}")
  add_library(robot_rl_tensorrt OBJECT src/backend_trt.cpp)
  target_include_directories(robot_rl_tensorrt PRIVATE src)
  target_include_directories(robot_rl_tensorrt SYSTEM PRIVATE ${NVINFER_INCLUDE})
  target_link_libraries(robot_rl_tensorrt PUBLIC ${NVINFER} ${NVONNXPARSER} CUDA::cudart)
else()
  message(STATUS "TensorRT: left out (ROBOT_RL_TENSORRT is ${ROBOT_RL_TENSORRT})")
  add_library(robot_rl_tensorrt INTERFACE)
endif()

if(ROBOT_RL_TENSORRT_STANDIN)
  foreach(version 10 11)
    add_executable(trt_probe_${version} EXCLUDE_FROM_ALL src/backend_trt.cpp
      ${ROBOT_RL_TENSORRT_STANDIN}/fake_tensorrt.cpp
      ${ROBOT_RL_TENSORRT_STANDIN}/fake_cuda.cpp
      ${ROBOT_RL_TENSORRT_STANDIN}/probe.cpp)
    target_include_directories(trt_probe_${version} PRIVATE ${ROBOT_RL_TENSORRT_STANDIN})
    target_compile_definitions(trt_probe_${version} PRIVATE STUB_TENSORRT=${version})
    target_link_libraries(trt_probe_${version} PRIVATE robot_rl_core)
  endforeach()
endif()

# CUDA, where its compiler is: device/cuda/ and with it the transport cuda_ipc. Everything else is complete without.
# Sets REFIT_CUDA. cudart is linked statically and the driver is found at run time, so that a program built with CUDA
# starts on machines without a GPU.
set(REFIT_WITH_CUDA AUTO CACHE STRING "AUTO: if nvcc is found. ON: stop if it is not. OFF: without")
set_property(CACHE REFIT_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)

set(REFIT_CUDA OFF)
if(REFIT_WITH_CUDA STREQUAL "AUTO" AND (REFIT_SANITIZE OR REFIT_COVERAGE OR REFIT_FUZZ))
  message(STATUS "CUDA: left out of an instrumented build")
elseif(REFIT_WITH_CUDA)
  find_program(REFIT_NVCC nvcc HINTS ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
  if(REFIT_NVCC)
    set(CMAKE_CUDA_COMPILER ${REFIT_NVCC})
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)  # Hopper's code, and its PTX for what comes later
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not know that nvcc has C++20
    find_package(CUDAToolkit 12.8 REQUIRED)
    set(REFIT_CUDA ON)
    message(STATUS "CUDA: ${CUDAToolkit_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(REFIT_WITH_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA: no nvcc, so without device/cuda and the transport cuda_ipc")
  else()
    message(FATAL_ERROR "REFIT_WITH_CUDA=ON, but there is no nvcc: install the CUDA toolkit (12.8 or newer) and put its bin "
                        "folder on the PATH, or set CUDA_HOME")
  endif()
endif()

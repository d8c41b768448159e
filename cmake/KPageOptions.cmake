# Options, third-party packages and the compile flags that every target of the project shares.

set(KPAGE_CUDA AUTO CACHE STRING "Build the CUDA kernels: ON, OFF, or AUTO (ON where nvcc is found)")
set_property(CACHE KPAGE_CUDA PROPERTY STRINGS AUTO ON OFF)
option(KPAGE_TOOLS "Build the command line tool" ${PROJECT_IS_TOP_LEVEL})
option(KPAGE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(KPAGE_BENCH "Build the benchmarks" OFF)
option(KPAGE_TORCH "Build the PyTorch extension" OFF)
option(KPAGE_INSTALL "Generate install rules" ${PROJECT_IS_TOP_LEVEL})
option(KPAGE_WERROR "Treat warnings as errors" ON)
option(KPAGE_PTXAS_VERBOSE "Let ptxas print registers, spills and shared memory of each kernel" OFF)
option(KPAGE_RUN_GPU_TESTS "Register the tests that need a GPU with ctest" OFF)
set(KPAGE_SANITIZE "" CACHE STRING "Comma-separated list for -fsanitize= (host code)")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# Objects are shared between build trees and clones: paths are relative to the source folder.
find_program(KPAGE_CCACHE ccache)
if(KPAGE_CCACHE)
  foreach(language CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER
          "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=true
          "${KPAGE_CCACHE}")
    endif()
  endforeach()
endif()

# CUDA ----------------------------------------------------------------------------------------------
set(KPAGE_CUDA_ENABLED OFF)
if(KPAGE_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(KPAGE_CUDA_ENABLED ON)
  endif()
elseif(KPAGE_CUDA)
  set(KPAGE_CUDA_ENABLED ON)
endif()

if(KPAGE_CUDA_ENABLED)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Architecture-specific features (wgmma, setmaxnreg) need 90a; its PTX runs nowhere else.
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    # CMake 3.25 does not know that nvcc takes C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  find_package(CUDAToolkit REQUIRED)
endif()

# Packages ------------------------------------------------------------------------------------------
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)

# Flags ---------------------------------------------------------------------------------------------
set(kpage_cxx_warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
# nvcc writes line directives and extensions of its own into the host code, so no -Wpedantic there.
set(kpage_cuda_host_warnings -Wall,-Wextra,-Wconversion,-Wshadow)

add_library(kpage_flags INTERFACE)
target_compile_options(
  kpage_flags
  INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${kpage_cxx_warnings}>"
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${KPAGE_WERROR}>>:-Werror>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${kpage_cuda_host_warnings}>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${KPAGE_WERROR}>>:-Werror=all-warnings>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${KPAGE_PTXAS_VERBOSE}>>:-Xptxas=-v,--warn-on-spills,--warn-on-local-memory-usage>"
)
target_compile_definitions(
  kpage_flags INTERFACE KPAGE_HAS_CUDA=$<BOOL:${KPAGE_CUDA_ENABLED}>
                        KPAGE_VERSION_STRING="${PROJECT_VERSION}")
if(KPAGE_SANITIZE)
  # g++ sees uninitialised values in the code that the sanitizers add.
  target_compile_options(
    kpage_flags
    INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${KPAGE_SANITIZE}>
              $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>
              $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
              $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  target_link_options(kpage_flags INTERFACE -fsanitize=${KPAGE_SANITIZE})
endif()

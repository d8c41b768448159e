# kpage_add_layer(<name> [DEPENDS <layer>...] [EXTERNAL <target>...])
#
# Makes the static library kpage_<name> of every *.cpp (and, with CUDA, *.cu) under src/<name>. New
# files are found at the next build. A layer sees src/ and include/, and links only what it names.
#
# Files named *_avx2.cpp and *_avx512.cpp are compiled for that instruction set; callers choose one at
# run time. They hold inner loops, so they are optimised in every build. Eigen is renamed in them, or
# the linker could keep their copy of an inline function for code that must run on any CPU. For the
# same reason such files should call nothing else that is inline and shared: plain pointers in, Eigen
# maps inside.
function(kpage_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPENDS;EXTERNAL")
  set(target kpage_${name})
  set(folder "${PROJECT_SOURCE_DIR}/src/${name}")

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  if(KPAGE_CUDA_ENABLED)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS "${folder}/*.cu")
    list(APPEND sources ${cuda_sources})
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${folder}/*.h")
  if(NOT sources)
    set(sources "${PROJECT_BINARY_DIR}/placeholder/${name}.cpp")
    file(CONFIGURE OUTPUT "${sources}" CONTENT "// The ${name} layer has headers only.\n")
  endif()

  # Sanitizers multiply the code that is to be optimised.
  set(inner_loops -O3)
  if(KPAGE_SANITIZE)
    set(inner_loops -O1)
  endif()
  foreach(source IN LISTS sources)
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "${inner_loops};-mavx2;-mfma"
                                                         COMPILE_DEFINITIONS "Eigen=EigenAvx2")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(
        "${source}"
        PROPERTIES COMPILE_OPTIONS
                   # g++ 12 warns of its own AVX-512 header, of other things at each level.
                   "${inner_loops};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx2;-mfma;-Wno-uninitialized;-Wno-maybe-uninitialized"
                   COMPILE_DEFINITIONS "Eigen=EigenAvx512")
    endif()
  endforeach()

  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/src"
                                              "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kpage_flags> ${arg_EXTERNAL})
  list(TRANSFORM arg_DEPENDS PREPEND kpage_)
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS})
  if(KPAGE_CUDA_ENABLED)
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
  endif()
  # Internal headers may include an external library's, and are checked by what the layer passes on.
  foreach(external IN LISTS arg_EXTERNAL)
    target_link_libraries(${target} INTERFACE $<BUILD_INTERFACE:${external}>)
  endforeach()
  if(headers)
    # Each header must compile on its own: target all_verify_interface_header_sets.
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/src" FILES
                                    ${headers})
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
  set_property(GLOBAL APPEND PROPERTY KPAGE_LAYERS ${target})
endfunction()

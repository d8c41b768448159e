# The library that users link: all layers in one archive (or one shared object with
# BUILD_SHARED_LIBS), its public headers and a CMake package.

get_property(kpage_layers GLOBAL PROPERTY KPAGE_LAYERS)
list(TRANSFORM kpage_layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE kpage_objects)
file(GLOB kpage_public_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kpage/*.h")

add_library(kpage ${kpage_objects})
add_library(kpage::kpage ALIAS kpage)
target_compile_features(kpage PUBLIC cxx_std_20)
target_sources(kpage PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES
                            ${kpage_public_headers})
set_target_properties(
  kpage
  PROPERTIES LINKER_LANGUAGE CXX
             VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
             VERIFY_INTERFACE_HEADER_SETS ON)
target_link_libraries(kpage PRIVATE Threads::Threads)
if(KPAGE_CUDA_ENABLED)
  target_link_libraries(kpage PRIVATE CUDA::cudart_static)
endif()
if(KPAGE_SANITIZE)
  target_link_options(kpage PUBLIC -fsanitize=${KPAGE_SANITIZE})
endif()

if(KPAGE_INSTALL)
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  set(kpage_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kpage")

  install(
    TARGETS kpage
    EXPORT kpageTargets
    COMPONENT library
    FILE_SET HEADERS
    COMPONENT library)
  install(
    EXPORT kpageTargets
    NAMESPACE kpage::
    DESTINATION "${kpage_package_dir}"
    COMPONENT library)
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/kpageConfig.cmake.in" "${PROJECT_BINARY_DIR}/kpageConfig.cmake"
    INSTALL_DESTINATION "${kpage_package_dir}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/kpageConfigVersion.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(
    FILES "${PROJECT_BINARY_DIR}/kpageConfig.cmake" "${PROJECT_BINARY_DIR}/kpageConfigVersion.cmake"
    DESTINATION "${kpage_package_dir}"
    COMPONENT library)
  install(
    FILES "${PROJECT_SOURCE_DIR}/LICENSE"
    DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    COMPONENT library)
endif()

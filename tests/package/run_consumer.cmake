# Installs a build tree, then configures, builds and runs the consumer against the installed copy.
#   cmake -DBUILD=<build tree> -DWORK=<scratch folder> -DCONSUMER=<project> -DGENERATOR=<generator>
#         [-DSOURCE=<kpage> -DOPTIONS=<list>]  -P run_consumer.cmake
# With SOURCE, the build tree is configured and built first.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${status}): ${command}")
  endif()
endfunction()

if(SOURCE)
  run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BUILD}" -G "${GENERATOR}" ${OPTIONS})
  run("${CMAKE_COMMAND}" --build "${BUILD}" --target kpage)
endif()

# A fresh prefix: a file of an earlier run must not stand in for one that is no longer installed.
file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --component library --prefix "${WORK}/prefix")
run("${CMAKE_COMMAND}" -S "${CONSUMER}" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -DCMAKE_BUILD_TYPE=Release)
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/consumer")

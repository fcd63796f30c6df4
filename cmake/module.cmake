# dlfs_module(NAME SOURCES... DEPENDS...): one static library a module, target dlfs_NAME, with the project's warnings.
add_library(dlfs_options INTERFACE)
target_compile_options(dlfs_options INTERFACE -Wall -Wextra -Wshadow
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Wold-style-cast>
  $<$<BOOL:${DLFS_WERROR}>:-Werror> -fno-omit-frame-pointer)
# These GCC warnings come from its optimiser, which raises false alarms that differ from version to version (GCC bugs 105651, 109224): they
# are shown, but they are no errors.
foreach(warning restrict free-nonheap-object array-bounds stringop-overflow stringop-overread maybe-uninitialized nonnull)
  target_compile_options(dlfs_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=${warning}>)
endforeach()
if(DLFS_SANITIZE)
  target_compile_options(dlfs_options INTERFACE -fsanitize=${DLFS_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(dlfs_options INTERFACE -fsanitize=${DLFS_SANITIZE})
endif()
if(DLFS_FUZZ)
  target_compile_options(dlfs_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DLFS_COVERAGE)
  target_compile_options(dlfs_options INTERFACE --coverage)
  target_link_options(dlfs_options INTERFACE --coverage)
endif()

function(dlfs_module name)
  cmake_parse_arguments(M "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(dlfs_${name} STATIC ${M_SOURCES})
  target_include_directories(dlfs_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(dlfs_${name} PRIVATE $<BUILD_INTERFACE:dlfs_options>)
  foreach(dep ${M_DEPENDS})
    target_link_libraries(dlfs_${name} PUBLIC dlfs_${dep})
  endforeach()
  target_link_libraries(dlfs_${name} PUBLIC ${M_LINK})
endfunction()

# dlfs_test(NAME SOURCES... LINK...): a GoogleTest binary, registered with ctest under its own name.
function(dlfs_test name)
  cmake_parse_arguments(T "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE dlfs_options ${T_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endfunction()

# Installs BUILD to a temporary prefix, moves that prefix, builds the consumers and examples of SOURCE against it, and runs them.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND mktemp -d OUTPUT_VARIABLE work OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(prefix ${work}/prefix)

# Runs a command; when it fails, shows what it said, removes the temporary files and ends the test.
function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    file(REMOVE_RECURSE ${work})
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(build name source)
  step("configuring ${name}" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${source} -B ${work}/${name} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release)
  step("building ${name}" ${CMAKE_COMMAND} --build ${work}/${name})
endfunction()

step("cmake --install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/first)
file(RENAME ${work}/first ${prefix})   # nothing in the tree may depend on where it was installed
file(GLOB_RECURSE pc ${prefix}/*/dlfs.pc)
cmake_path(GET pc PARENT_PATH pc_dir)
file(GLOB_RECURSE shared ${prefix}/*/libdlfs.so)
cmake_path(GET shared PARENT_PATH library_dir)

build(c ${SOURCE}/tests/consumer/c)
step("the C consumer" ${work}/c/consumer_c ${work}/c.dlfs)
build(cpp ${SOURCE}/tests/consumer/cpp)
step("the C++ consumer" ${work}/cpp/consumer_shared ${work}/cpp_shared.dlfs)
step("the static C++ consumer" ${work}/cpp/consumer_static ${work}/cpp_static.dlfs)
build(example_cpp ${SOURCE}/examples/cpp)
step("examples/cpp" ${work}/example_cpp/pack_and_resume ${work}/example.dlfs)
build(example_c ${SOURCE}/examples/c)
step("examples/c" ${work}/example_c/epochs ${work}/example.dlfs 64)
if(NOT output MATCHES "2000 samples, ")
  file(REMOVE_RECURSE ${work})
  message(FATAL_ERROR "examples/c did not draw two epochs of 1000 samples:\n${output}")
endif()

# pkg-config, shared and static.
set(ENV{PKG_CONFIG_PATH} ${pc_dir}:$ENV{PKG_CONFIG_PATH})
set(ENV{LD_LIBRARY_PATH} ${library_dir})
set(c_source ${SOURCE}/examples/c/epochs.c)
step("pkg-config, shared" sh -c "${CC} -std=c11 ${c_source} $(pkg-config --cflags --libs dlfs) -o ${work}/pc_shared")
step("the pkg-config program" ${work}/pc_shared ${work}/example.dlfs)
step("pkg-config, static" sh -c "${CC} -std=c11 ${c_source} $(pkg-config --cflags dlfs) ${library_dir}/libdlfs.a $(pkg-config --static --libs-only-l dlfs | sed s/-ldlfs//) -o ${work}/pc_static")
step("the static pkg-config program" ${work}/pc_static ${work}/example.dlfs)

# Every defined dynamic symbol is a public name.
step("nm" sh -c "${NM} -DC --defined-only ${shared} | sed 's/^[0-9a-f]* . //' | grep -vE '^(dlfs_|dlfs::(Batch|File|Schema|Sequence|Volume|Writer)::|dlfs::(code_name|placement|version)\\(|DLFS_0[.]1)' || true")
string(STRIP "${output}" strangers)
file(REMOVE_RECURSE ${work})
if(strangers)
  message(FATAL_ERROR "libdlfs.so exports names that are not public:\n${strangers}")
endif()

# The library that users link: libdlfs.so with nothing but the public names in it, and libdlfs.a. Both are put together from the
# modules' objects. dlfs::dlfs and dlfs::dlfs_static, in the installed package as well as for a project that adds this one by
# add_subdirectory or FetchContent. Where nothing is installed they are built only when something links them.
set(dlfs_modules base nvme net block layout directory order volume reader api)
set(dlfs_objects)
foreach(module ${dlfs_modules})
  list(APPEND dlfs_objects $<TARGET_OBJECTS:dlfs_${module}>)
endforeach()
set(dlfs_dependencies fmt::fmt PkgConfig::ISAL PkgConfig::URING PkgConfig::XXHASH Threads::Threads)

add_library(dlfs_shared SHARED ${dlfs_objects})
add_library(dlfs_static STATIC ${dlfs_objects})
foreach(library dlfs_shared dlfs_static)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME dlfs LINKER_LANGUAGE CXX)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(NOT DLFS_INSTALL)
    set_target_properties(${library} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endforeach()

add_library(dlfs::dlfs ALIAS dlfs_shared)
add_library(dlfs::dlfs_static ALIAS dlfs_static)

# The ABI may change with every minor version until 1.0.
set_target_properties(dlfs_shared PROPERTIES EXPORT_NAME dlfs VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
target_link_options(dlfs_shared PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
# fmt by its file: as a target it would be a dependency of the installed package.
target_link_libraries(dlfs_shared PRIVATE dlfs_options $<TARGET_FILE:fmt::fmt> PkgConfig::ISAL PkgConfig::URING
  PkgConfig::XXHASH Threads::Threads)
if(NOT DLFS_SANITIZE)
  target_link_options(dlfs_shared PRIVATE LINKER:--no-undefined)
endif()
target_link_libraries(dlfs_static PUBLIC ${dlfs_dependencies})

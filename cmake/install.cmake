# cmake --install: libraries, headers, CMake package and pkg-config file.
include(CMakePackageConfigHelpers)
set(dlfs_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dlfs)

install(DIRECTORY include/dlfs DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS dlfs_shared EXPORT dlfs-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS dlfs_static EXPORT dlfs-static-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT dlfs-targets NAMESPACE dlfs:: DESTINATION ${dlfs_package_dir})
install(EXPORT dlfs-static-targets NAMESPACE dlfs:: DESTINATION ${dlfs_package_dir})

configure_package_config_file(cmake/dlfs-config.cmake.in dlfs-config.cmake INSTALL_DESTINATION ${dlfs_package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(dlfs-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dlfs-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/dlfs-config-version.cmake
  DESTINATION ${dlfs_package_dir})

# Paths relative to the file's own place, so that an installed tree may be moved.
file(RELATIVE_PATH dlfs_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" dlfs_pc_prefix "${dlfs_pc_prefix}")
configure_file(cmake/dlfs.pc.in dlfs.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dlfs.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

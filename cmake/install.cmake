# What `cmake --install` brings and what `cpack` packs: headers, libtamaki.so, the preload libraries (lib/tamaki/), the
# tamaki command, tamaki.pc, TamakiConfig.cmake, documents. Every path is relative: the installed tree may be moved.
include(CMakePackageConfigHelpers)

install(FILES include/tamaki/tamaki.h include/tamaki/tamaki.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tamaki)
install(TARGETS tamaki EXPORT TamakiTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET tamaki_command)
  install(TARGETS tamaki_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(mpi openmpi mpich)
  if(TARGET tamaki_mpi_${mpi})
    install(TARGETS tamaki_mpi_${mpi} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tamaki)
  endif()
endforeach()

install(EXPORT TamakiTargets NAMESPACE Tamaki:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tamaki)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/TamakiConfig.cmake
  "# Tamaki::tamaki: the C interface (tamaki/tamaki.h) and the C++20 wrapper (tamaki/tamaki.hpp).\n"
  "include(\"\${CMAKE_CURRENT_LIST_DIR}/TamakiTargets.cmake\")\n")
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/TamakiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TamakiConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/TamakiConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tamaki)

file(RELATIVE_PATH TAMAKI_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tamaki.pc.in ${CMAKE_CURRENT_BINARY_DIR}/tamaki.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tamaki.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tamaki)
set(CPACK_PACKAGE_VENDOR "Tamaki maintainers")
set(CPACK_PACKAGE_CONTACT "Tamaki maintainers <maintainers@tamaki.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Topology-aware collective communication")
set(CPACK_PACKAGE_DESCRIPTION
  "Collectives whose schedules are data: proved, drawn, measured and run. Brings libtamaki.so with its C and C++
 headers, preload libraries that serve MPI programs unchanged, and the tamaki command.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # also has ldconfig run
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin | mpich")
find_program(TAMAKI_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(TAMAKI_DPKG_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
else()
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libstdc++6 (>= 12), libgcc-s1, libhwloc15")
endif()
include(CPack)

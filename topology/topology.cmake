# What topology/ adds to the core: the descriptions of machines, compiled in and installed, and the XML reader.
file(GLOB TAMAKI_CLUSTER_FILES CONFIGURE_DEPENDS topology/clusters/*.json)
set(TAMAKI_CLUSTERS_CPP ${CMAKE_BINARY_DIR}/topology/clusters.cpp)
add_custom_command(OUTPUT ${TAMAKI_CLUSTERS_CPP}
  COMMAND ${CMAKE_COMMAND} -DOUT=${TAMAKI_CLUSTERS_CPP} -P ${CMAKE_SOURCE_DIR}/topology/clusters/embed.cmake
  DEPENDS ${TAMAKI_CLUSTER_FILES} ${CMAKE_SOURCE_DIR}/topology/clusters/embed.cmake VERBATIM)
target_sources(tamaki_core PRIVATE ${TAMAKI_CLUSTERS_CPP})
install(FILES ${TAMAKI_CLUSTER_FILES} DESTINATION ${CMAKE_INSTALL_DATADIR}/tamaki/clusters)

find_path(EXPAT_INCLUDE expat.h REQUIRED)
find_library(EXPAT_STATIC libexpat.a REQUIRED)  # static and hidden, as libsodium: no symbol of it leaves libtamaki.so
target_include_directories(tamaki_core PRIVATE ${EXPAT_INCLUDE})
target_link_libraries(tamaki_core PUBLIC ${EXPAT_STATIC})
